"""A deployment of another version: older settings are whole, those that can't be read are told in a sentence."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import boto3
import pytest

from fanfold.doctor.deployment import Deployment
from fanfold.local import LocalError
from functions.runtime.settings import Settings


def a_deployment(session: boto3.Session, settings: object) -> Deployment:
    deployment = Deployment("fanfold-prod", session, now=datetime(2026, 11, 1, tzinfo=UTC))
    deployment.__dict__["outputs"] = {"Settings": json.dumps(settings)}
    return deployment


def test_settings_that_came_later_have_their_defaults(session: boto3.Session) -> None:
    older = {"FANFOLD_TABLE": "t", "FANFOLD_CLASSES": '{"model": {"lanes": ["normal"]}}', "FANFOLD_GONE_SINCE": "1"}
    assert a_deployment(session, older).settings == Settings(table="t")


@pytest.mark.parametrize(
    "newer",
    [
        {"FANFOLD_CLASSES": '{"model": {"lanes": ["normal"], "not_yet_thought_of": 1}}'},
        {"FANFOLD_CLASSES": '["model"]'},
        {"FANFOLD_LEASE_SECONDS": "a while"},
        ["no", "environment"],
    ],
)
def test_settings_that_this_version_cannot_read_are_told_in_a_sentence(session: boto3.Session, newer: object) -> None:
    with pytest.raises(LocalError, match="'fanfold-prod' has settings that this version can't read"):
        _ = a_deployment(session, newer).settings
