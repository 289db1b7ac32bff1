"""DynamoDB's expressions on one item: moto says what they mean, and what is not spoken is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import boto3
import pytest
from moto import mock_aws

from fanfold.adapters.sqlite import expressions
from fanfold.adapters.sqlite.expressions import NotSpoken

KEY = {"pk": {"S": "p"}, "sk": {"S": "s"}}
ITEMS: list[Mapping[str, Any]] = [
    {},
    {**KEY, "n": {"N": "1"}, "u": {"B": b"\x01a"}, "z": {"N": "1"}},
    {**KEY, "n": {"N": "10"}, "u": {"B": b"\x02"}, "z": {"N": "2"}, "x": {"N": "99.5"}},
    {**KEY, "n": {"S": "1"}, "x": {"N": "100"}, "b": {"S": "text"}},
    {**KEY, "c": {"N": "0"}, "m": {"N": "-1"}, "h5": {"N": "3"}, "x": {"N": "101"}},
    {**KEY, "c": {"N": "7"}, "m": {"N": "7"}, "h5": {"N": "0"}, "b": {"S": "ü"}},
]
VALUES: Mapping[str, Any] = {
    ":n": {"N": "1"},
    ":u": {"B": b"\x01a"},
    ":z": {"N": "1.0"},
    ":now": {"N": "100.000"},
    ":zero": {"N": "0"},
    ":t": {"S": "text"},
}
CONDITIONS = [
    "attribute_not_exists(pk)",
    "attribute_exists(pk) AND attribute_not_exists(x)",
    "attribute_not_exists(pk) OR x < :now",
    "(n = :n AND u = :u) AND (attribute_not_exists(x) OR x >= :now)",
    "attribute_not_exists(pk) OR x < :now OR (n = :n AND u = :u AND z <= :z)",
    "attribute_not_exists(m) OR m < :zero OR c < m",
    "c > :zero AND h5 > :zero",
    "b <> :t",
    "b = :t",
    "b > :t",
    "n <> :n",
    "attribute_not_exists(pk) OR n <> :n",
]
UPDATES = [
    ("SET m = if_not_exists(m, :n) ADD c :n, h5 :n", [":n"]),
    ("ADD c :n", [":n"]),
    ("SET t0 = if_not_exists(n, :zero), n = :n, b = :t REMOVE x, u", [":n", ":zero", ":t"]),
    ("REMOVE h5", []),
]


def used(text: str) -> dict[str, Any]:
    return {name: value for name, value in VALUES.items() if name in text.replace("(", " ").replace(")", " ").split()}


@pytest.fixture(scope="module")
def table() -> Any:
    with mock_aws():
        client = boto3.client("dynamodb", region_name="eu-central-1")
        client.create_table(
            TableName="t",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
            BillingMode="PAY_PER_REQUEST",
        )
        yield client


def stands(client: Any, item: Mapping[str, Any]) -> None:
    client.delete_item(TableName="t", Key=KEY)
    if item:
        client.put_item(TableName="t", Item=item)


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_condition_holds_where_it_holds_in_dynamodb(table: Any, text: str) -> None:
    found = []
    for item in ITEMS:
        stands(table, item)
        try:
            table.delete_item(
                TableName="t",
                Key=KEY,
                ConditionExpression=text,
                **({"ExpressionAttributeValues": used(text)} if used(text) else {}),
            )
        except table.exceptions.ConditionalCheckFailedException:
            found.append(False)
        else:
            found.append(True)
    assert [expressions.condition(text)(item, VALUES) for item in ITEMS] == found


@pytest.mark.parametrize(("text", "names"), UPDATES)
def test_an_update_makes_the_item_that_dynamodb_makes_of_it(table: Any, text: str, names: list[str]) -> None:
    values = {name: VALUES[name] for name in names}
    for item in ITEMS:
        stands(table, item)
        answer = table.update_item(
            TableName="t",
            Key=KEY,
            UpdateExpression=text,
            ReturnValues="ALL_NEW",
            **({"ExpressionAttributeValues": values} if values else {}),
        )
        assert expressions.update(text)(item or KEY, values) == answer["Attributes"]


@pytest.mark.parametrize(
    "text",
    ["size(b) > :n", "n IN (:n, :z)", "NOT n = :n", "n = ", "(n = :n", "n = :n)", "n", "a.b[0] = :n", "", "n = :n :z"],
)
def test_what_no_adapter_says_is_refused_and_not_guessed(text: str) -> None:
    with pytest.raises(NotSpoken):
        expressions.condition(text)


@pytest.mark.parametrize("text", ["DELETE s :n", "SET n", "SET n = ", "ADD", "n = :n", "SET n = :n,"])
def test_an_update_that_no_adapter_makes_is_refused(text: str) -> None:
    with pytest.raises(NotSpoken):
        expressions.update(text)
