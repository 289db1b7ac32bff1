"""The doctor on what is not quite its own: deployments of another version, endpoints that lack a call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import boto3
import pytest
from botocore.exceptions import ClientError

from fanfold.doctor.deployment import Deployment
from fanfold.doctor.examination import examine
from fanfold.doctor.finding import Check, Finding
from fanfold.local.local_stack import LocalError
from fanfold.service.settings import Settings


def a_deployment(session: boto3.Session, settings: object, *, endpoint: str | None = None) -> Deployment:
    now = datetime(2026, 11, 1, tzinfo=UTC)
    deployment = Deployment("fanfold-prod", session, now=now, endpoint_url=endpoint)
    deployment.__dict__["outputs"] = {"Settings": json.dumps(settings)}
    return deployment


def test_settings_that_came_later_have_their_defaults(session: boto3.Session) -> None:
    older = {"FANFOLD_TABLE": "t", "FANFOLD_CLASSES": '{"model": {"lanes": ["normal"]}}', "FANFOLD_GONE_SINCE": "1"}
    assert a_deployment(session, older).settings == Settings(table="t")


@pytest.mark.parametrize(
    "newer",
    [
        {"FANFOLD_QUEUES": "model=normal/a/b"},
        {"FANFOLD_CLASSES": '["model"]'},
        {"FANFOLD_LEASE_SECONDS": "a while"},
        ["no", "environment"],
    ],
)
def test_settings_that_this_version_cannot_read_are_told_in_a_sentence(session: boto3.Session, newer: object) -> None:
    with pytest.raises(LocalError, match="'fanfold-prod' has settings that this version can't read"):
        _ = a_deployment(session, newer).settings


def a_check(code: str, status: int) -> Check:
    """Finds something, and then asks for what is answered like this."""

    def find(_: Deployment) -> Iterator[Finding]:
        yield Finding(what="something", why="it matters", fix="mend it")
        raise ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "AskIt")  # type: ignore[typeddict-item]  # as much of it as is read

    return Check(name="odd", looks_at="oddities", find=find)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("UnknownOperationException", 400),
        ("AWS.SimpleQueueService.UnsupportedOperation", 400),
        ("InternalFailure", 501),
        ("404", 404),
    ],
)
def test_what_an_emulator_does_not_have_is_no_finding_and_takes_none_away(
    session: boto3.Session, code: str, status: int
) -> None:
    local = examine(a_deployment(session, {}, endpoint="http://127.0.0.1:9"), [a_check(code, status)])
    assert [finding.what for _, finding in local.findings] == ["something"]
    assert [reason for _, reason in local.not_offered] == ["this endpoint has no AskIt"]
    aws = examine(a_deployment(session, {}), [a_check(code, status)])
    assert (len(aws.findings), aws.not_offered) == (2, [])
