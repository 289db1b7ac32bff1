"""Workers may ask the models a deployment names, and no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fanfold.cdk.bedrock import models_of
from tests.infra.conftest import Synthesised

PROFILE = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-20250514-v1:0"


def grants(stack: Synthesised) -> list[tuple[str, Any]]:
    """Who has a grant of Bedrock's, and on what."""
    found = []
    for policy in stack.all("AWS::IAM::Policy").values():
        for statement in policy["PolicyDocument"]["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            if any(action.startswith("bedrock:") for action in actions):
                assert actions == ["bedrock:InvokeModelWithResponseStream"]
                resources = statement["Resource"]
                resources = resources if isinstance(resources, list) else [resources]
                found.append((stack.text(policy["Roles"][0]), [stack.text(each) for each in resources]))
    return found


def test_no_model_may_be_asked_by_default(prod: Synthesised, local: Synthesised) -> None:
    assert grants(prod) == grants(local) == []


def test_workers_and_batches_of_maps_may_ask_exactly_the_models_named(synth: Callable[..., Synthesised]) -> None:
    models = json.dumps(["amazon.nova-lite-v1:0", PROFILE])
    stack = synth({"local": "true", "bedrock_models": models, "classes": {"model": {}}})
    told = grants(stack)
    roles = {role for role, _ in told}
    assert roles == {stack.text(stack.functions()[module]["Role"]).split(".")[0] for module in ("worker", "fanout")}
    for _, resources in told:
        assert set(resources) == {
            "arn:AWS::Partition:bedrock:AWS::Region::foundation-model/amazon.nova-lite-v1:0",
            PROFILE,
        }


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("{", "no JSON"),
        ('"amazon.nova-lite-v1:0"', "JSON list"),
        ("[7]", "JSON list"),
        ('["*"]', "no wildcards"),
        ('["amazon.*"]', "no wildcards"),
        ('["arn:aws:bedrock:us-east-1::foundation-model/*"]', "no wildcards"),
        ('["arn:aws:s3:::bucket"]', "neither"),
        ('["us.anthropic.claude-sonnet-4-20250514-v1:0"]', "inference profile"),
    ],
)
def test_what_names_no_model_is_refused_at_synth(given: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        models_of(given)
