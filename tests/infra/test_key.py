"""A key of the customer's: what it encrypts, and that everybody who touches that may use it, through those services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fanfold.cdk.config import Config
from fanfold.cdk.kms_key import USE, key_of
from tests.infra.conftest import ONE_CLASS, Synthesised

ARN = "arn:aws:kms:eu-west-1:123456789012:key/0f0e0d0c-1111-2222-3333-444455556666"
ENCRYPTED = ("AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SQS::Queue")


@pytest.fixture(scope="module")
def own(synth: Callable[..., Synthesised]) -> Synthesised:
    return synth({"stage": "prod", "kms": "true", "classes": ONE_CLASS}, nag=True)


@pytest.fixture(scope="module")
def given(synth: Callable[..., Synthesised]) -> Synthesised:
    return synth({"stage": "prod", "kms": ARN, "classes": ONE_CLASS})


def keys_of(stack: Synthesised) -> set[str]:
    """The keys that table, bucket and queues are encrypted with."""
    table, bucket, *queues = (each for kind in ENCRYPTED for each in stack.all(kind).values())
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert (table["SSESpecification"]["SSEType"], table["SSESpecification"]["SSEEnabled"]) == ("KMS", True)
    assert (rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"], rule["BucketKeyEnabled"]) == ("aws:kms", True)
    used = [table["SSESpecification"]["KMSMasterKeyId"], rule["ServerSideEncryptionByDefault"]["KMSMasterKeyID"]]
    return {stack.text(key) for key in (*used, *(queue["KmsMasterKeyId"] for queue in queues))}


def users_of(stack: Synthesised, key: str) -> set[str]:
    """The roles that may do all that is needed with a key, through the three services and no other way."""
    return {
        role["Ref"]
        for policy in stack.all("AWS::IAM::Policy").values()
        for statement in policy["PolicyDocument"]["Statement"]
        if set(statement["Action"]) >= set(USE)
        for role in policy["Roles"]
        if stack.text(statement["Resource"]) == key
        and {stack.text(each) for each in statement["Condition"]["StringEquals"]["kms:ViaService"]}
        == {f"{service}.AWS::Region.amazonaws.com" for service in ("dynamodb", "s3", "sqs")}
    }


def test_a_key_of_the_stacks_own_is_rotated_and_outlives_it_with_the_data(own: Synthesised) -> None:
    (key,) = own.all("AWS::KMS::Key")

    assert own.all("AWS::KMS::Key")[key]["EnableKeyRotation"] is True
    assert own.template["Resources"][key]["DeletionPolicy"] == "Retain"
    assert keys_of(own) == {f"{key}.Arn"}


def test_a_key_that_exists_is_used_and_none_is_made(given: Synthesised) -> None:
    assert not given.all("AWS::KMS::Key")
    assert keys_of(given) == {ARN}


@pytest.mark.parametrize("stack", ["own", "given"])
def test_every_function_and_every_state_machine_may_use_the_key(stack: str, request: pytest.FixtureRequest) -> None:
    deployed: Synthesised = request.getfixturevalue(stack)
    (key,) = keys_of(deployed)
    ours = [f for f in deployed.all("AWS::Lambda::Function").values() if f["Handler"].startswith("functions.")]
    roles = {function["Role"]["Fn::GetAtt"][0] for function in ours}
    machines = {m["RoleArn"]["Fn::GetAtt"][0] for m in deployed.all("AWS::StepFunctions::StateMachine").values()}

    assert machines
    assert roles | machines <= users_of(deployed, key)


def test_eventbridge_may_ring_through_an_encrypted_queue(own: Synthesised) -> None:
    (key,) = own.all("AWS::KMS::Key").values()
    services = {
        str(statement["Principal"].get("Service")): statement["Action"] for statement in key["KeyPolicy"]["Statement"]
    }

    assert "kms:Decrypt" in services["events.amazonaws.com"]


def test_without_the_setting_the_services_own_keys_are_used(prod: Synthesised) -> None:
    assert not prod.all("AWS::KMS::Key")
    assert not [queue for queue in prod.all("AWS::SQS::Queue").values() if "KmsMasterKeyId" in queue]
    assert not [p for p in prod.all("AWS::IAM::Policy").values() if "kms:" in str(p)]


@pytest.mark.parametrize(("value", "means"), [(None, ""), ("false", ""), (True, "true"), ("true", "true"), (ARN, ARN)])
def test_the_setting_is_yes_no_or_a_key(value: Any, means: str) -> None:
    assert key_of(value) == means


@pytest.mark.parametrize("value", ["yes", "alias/mine", ARN.replace(":key/", ":alias/"), 1, {}])
def test_anything_else_is_refused(value: Any) -> None:
    context: Mapping[str, Any] = {"kms": value}
    with pytest.raises(ValueError, match="kms"):
        Config.from_context(context.get)
