"""The context: every key is one that means something, and CDK's own switches are set on purpose."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import aws_cdk
import pytest

from fanfold.cdk import context
from fanfold.cdk.config import Config
from infra.stack import PROJECT
from tests.infra.conftest import CONTEXT

NOT_SET = {
    "@aws-cdk/core:enableAdditionalMetadataCollection": "Nothing of a deployment is reported: "
    "`versionReporting` is off too.",
    "@aws-cdk/aws-ec2:restrictDefaultSecurityGroup": "Costs a function of CDK's own, in Node, with wide rights, to "
    "empty a security group that nothing of ours is in.",
}
"""CDK's recommended flags that are not as recommended, each with its reason."""


def recommended() -> dict[str, Any]:
    """What `cdk init` would set with this version of the library."""
    (archive,) = Path(aws_cdk.__file__).parent.glob("_jsii/aws-cdk-lib@*.jsii.tgz")
    with tarfile.open(archive) as files:
        found = files.extractfile("package/recommended-feature-flags.json")
        assert found is not None
        flags: dict[str, Any] = json.load(found)
        return flags


def test_every_recommended_flag_of_cdk_is_set_or_has_a_reason_not_to_be() -> None:
    flags = recommended()
    assert {key for key, value in flags.items() if CONTEXT.get(key) != value} == set(NOT_SET)
    assert all(CONTEXT[key] is False for key in NOT_SET)


def test_the_keys_are_those_that_are_asked_for_and_documented() -> None:
    asked: set[str] = set()

    def get(key: str) -> None:
        asked.add(key)

    Config.from_context(get)
    page = (PROJECT.folder / "docs" / "deployment.md").read_text(encoding="utf-8")
    table = page[page.index("| key | default | meaning |") :].split("\n\n")[0]
    assert context.KEYS == asked == set(re.findall(r"^\| `(\w+)` \|", table, re.M))


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("stagee", "did you mean 'stage'"),
        ("STAGE", "unknown key 'STAGE'"),
        ("alarm-email", "did you mean 'alarm_email'"),
        ("setting", "did you mean 'settings'"),
        ("x", "known are .*stage"),
    ],
)
def test_an_unknown_key_is_refused_with_the_one_that_was_meant(key: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        context.check([*CONTEXT, "stage", key])


def test_keys_of_ours_and_of_cdk_pass() -> None:
    looked_up = "availability-zones:account=123456789012:region=eu-west-1"
    context.check([*CONTEXT, *context.KEYS, "aws:cdk:bundling-stacks", looked_up, "acknowledged-issue-numbers"])


def test_a_typing_error_stops_the_synth_before_anything_is_made(tmp_path: Path) -> None:
    given = {"CDK_CONTEXT_JSON": json.dumps({**CONTEXT, "stagee": "prod"}), "CDK_OUTDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=PROJECT.folder,
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "unknown key 'stagee'; did you mean 'stage'?" in done.stderr
    assert not list(tmp_path.glob("*.template.json"))
