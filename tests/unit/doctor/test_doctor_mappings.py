"""What a template says of a mapping's queue and function, in each of the ways in which CDK writes it."""

from __future__ import annotations

from typing import Any

import pytest

from fanfold.doctor.resource import Resource, ends

URL = "https://sqs.eu-central-1.amazonaws.com/1/q"
ALIAS = "arn:aws:lambda:eu-central-1:1:function:worker:live"


def a_resource(name: str, kind: str, physical_id: str = "", **properties: Any) -> Resource:
    return Resource(logical_id=name, kind=kind, physical_id=physical_id, properties=properties)


RESOURCES = (
    a_resource("Queue1", "AWS::SQS::Queue", URL),
    a_resource("Worker1", "AWS::Lambda::Function", "worker"),
    a_resource("Live1", "AWS::Lambda::Alias", ALIAS),
    a_resource("Role1", "AWS::IAM::Role", "role"),
)
PARTS = {"Fn::Split": [":", {"Ref": "Live1"}]}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ({"Ref": "Worker1"}, "worker"),
        ({"Ref": "Live1"}, ALIAS),
        ({"Fn::GetAtt": ["Worker1", "Arn"]}, "worker"),
        ({"Fn::Join": ["", [{"Ref": "AWS::Region"}, {"Fn::Select": [6, PARTS]}, ":live"]]}, ALIAS),
        ("arn:of:somebody:else", None),
        ({"Ref": "Role1"}, None),
        ({"Ref": "NotThere"}, None),
        (None, None),
    ],
)
def test_a_mappings_function_is_found_however_the_template_names_it(function: Any, expected: str | None) -> None:
    mapping = a_resource("M", "m", EventSourceArn={"Fn::GetAtt": ["Queue1", "Arn"]}, FunctionName=function)
    assert ends(mapping, RESOURCES) == (URL, expected)


@pytest.mark.parametrize("source", ["arn:aws:sqs:eu-central-1:1:q", {"Fn::GetAtt": ["Gone", "Arn"]}, None])
def test_a_queue_that_is_not_the_stacks_is_none_of_ours(source: Any) -> None:
    mapping = a_resource("M", "m", EventSourceArn=source, FunctionName={"Ref": "Worker1"})
    assert ends(mapping, RESOURCES) == (None, "worker")
