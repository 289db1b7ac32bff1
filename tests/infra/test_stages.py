"""Stages: what is for keeps is kept and protected, and everything says whose it is."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import App
from aws_cdk.assertions import Annotations, Match

from fanfold.cdk import alarms, config
from fanfold.cdk.config import Config
from fanfold.doctor import redrive, throttles
from infra.stack import FanfoldStack
from tests.infra.conftest import CONTEXT, ONE_CLASS, Synthesised


def test_everything_that_can_be_is_tagged_with_stage_and_service(prod: Synthesised, local: Synthesised) -> None:
    for deployed, stage in ((prod, "prod"), (local, "dev")):
        for kind in ("AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SQS::Queue", "AWS::Lambda::Function"):
            resources = deployed.all(kind)
            assert resources, kind
            for name, resource in resources.items():
                tags = {tag["Key"]: tag["Value"] for tag in resource.get("Tags", ())}
                assert {"service": "fanfold", "stage": stage}.items() <= tags.items(), name


def test_logs_are_kept_longer_where_the_data_is(prod: Synthesised, local: Synthesised) -> None:
    def days(deployed: Synthesised) -> set[int]:
        return {group["RetentionInDays"] for group in deployed.all("AWS::Logs::LogGroup").values()}

    assert (days(prod), days(local)) == ({90}, {7})


def stack_of(**context: Any) -> FanfoldStack:
    app = App(
        context={**CONTEXT, "aws:cdk:bundling-stacks": [], "classes": ONE_CLASS, **context},
        builtin_cloud_formation_validation=False,
    )
    return FanfoldStack(app, "stage", config=Config.from_context(app.node.try_get_context))


def test_a_stage_for_keeps_is_protected_and_warns_when_its_alarms_reach_nobody() -> None:
    stack = stack_of(stage="prod")
    assert stack.termination_protection
    assert len(Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("alarm_email"))) == 1


def test_a_stage_for_keeps_whose_callers_have_no_room_of_their_own_is_told_of_at_synth() -> None:
    def told(**context: Any) -> int:
        return len(Annotations.from_stack(stack_of(**context)).find_warning("*", Match.string_like_regexp("reserved")))

    assert (told(stage="prod"), told(stage="prod", reserved='{"api": 50}'), told(stage="dev")) == (1, 0, 0)


@pytest.mark.parametrize("stage", ["Prod", "-", "a" * 21, "de v", "1"])
def test_a_stage_that_is_no_name_is_refused(stage: str) -> None:
    with pytest.raises(ValueError, match="stage"):
        Config.from_context({"stage": stage}.get)


def test_the_doctor_knows_the_numbers_that_are_deployed() -> None:
    deployed = (config.SOURCE_RETENTION_DAYS, config.DEAD_RETENTION_DAYS, config.MAX_RECEIVES, alarms.THROTTLES_LEAST)
    assert deployed == (redrive.SOURCE_DAYS, redrive.DEAD_DAYS, redrive.MAX_RECEIVES, throttles.LEAST)
