"""The way back for a stage that is kept: what holds data keeps its name, and a restored table can take its place."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fanfold.cdk.config import Config
from tests.infra.conftest import Synthesised

STATEFUL = ("AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SQS::Queue", "AWS::KMS::Key", "AWS::SNS::Topic")
RESTORED = "fanfold-restored"


def names(stack: Synthesised, *kinds: str) -> set[str]:
    return {name for name, each in stack.template["Resources"].items() if each["Type"] in kinds}


def test_what_holds_data_is_called_the_same_in_the_template_for_ever(synth: Callable[..., Synthesised]) -> None:
    """CloudFormation makes anew what is called otherwise: an empty table, and queues that nobody's runs are in."""
    stack = synth({"stage": "prod", "kms": "true", "classes": '{"model": {}}'})
    assert names(stack, *STATEFUL) == PINNED


def test_overwritten_and_removed_payloads_are_kept_as_long_as_the_table_can_be_taken_back(
    prod: Synthesised, local: Synthesised
) -> None:
    for stack, kept in ((prod, {"NoncurrentDays": 35}), (local, None)):
        (bucket,) = stack.all("AWS::S3::Bucket").values()
        assert bucket["LifecycleConfiguration"]["Rules"][0].get("NoncurrentVersionExpiration") == kept
        assert bucket.get("VersioningConfiguration") == (kept and {"Status": "Enabled"})
    (table,) = prod.all("AWS::DynamoDB::Table").values()
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


def test_a_restored_table_takes_the_slot_of_the_stacks_own(synth: Callable[..., Synthesised]) -> None:
    plain = synth({"stage": "prod", "classes": '{"model": {}}'})
    stack = synth({"stage": "prod", "classes": '{"model": {}}', "table": RESTORED})
    assert names(stack, *STATEFUL) == names(plain, *STATEFUL), "the own one stays"
    (own,) = stack.all("AWS::DynamoDB::Table")
    resources = {
        name: each for name, each in stack.template["Resources"].items() if each["Type"] != "AWS::DynamoDB::Table"
    }
    assert f'"{own}"' not in json.dumps([resources, stack.template["Outputs"]]), "nothing uses it"
    for function in stack.functions().values():
        assert function["Environment"]["Variables"]["FANFOLD_TABLE"] == RESTORED
    assert stack.template["Outputs"]["Table"]["Value"] == RESTORED


@pytest.mark.parametrize("name", ["ab", "runs/of/mine", "a" * 256])
def test_what_is_no_tables_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no table's name"):
        Config(table=name)


PINNED = {
    "AlarmsTopic3A2DFEBA",
    "Key9BCD29C7",
    "ModelQueuesDead1FAD2092",
    "ModelQueuesHighLaneF2CB3251",
    "ModelQueuesLowLane9DEDC0D6",
    "ModelQueuesNormalLane46ED3C54",
    "ModelQueuesResume281BEA43",
    "PayloadsBucket1715615A",
    "RunsTable96AAA230",
}
"""The names in the template of everything that holds data, of a deployment with a key and one class."""
