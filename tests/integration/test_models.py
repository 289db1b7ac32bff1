"""A model of the emulator's Bedrock, asked by a step of a run through the whole stack."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fanfold import Client
from tests.support.elsewhere import ENDPOINT

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(bool(ENDPOINT), reason="LocalStack's free edition has no Bedrock"),
]

DOCS = (Path(__file__).parents[2] / "docs" / "workflows.md").read_text(encoding="utf-8")


def test_the_documented_example_answers_with_text_and_tokens_and_its_journal_has_what_was_said(client: Client) -> None:
    (document,) = [block for block in re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL) if "bedrock.converse" in block]
    client.apply(document)
    run_id = client.submit("summary", {"text": "A long story."})["id"]
    run = client.wait(run_id, timeout=60)
    assert run["status"] == "succeeded", run
    assert run["output"]["said"]
    assert run["output"]["tokens"] > 0
    emitted = [event["data"]["text"] for event in client.events(run_id) if event["type"] == "step.emitted"]
    assert "".join(emitted) == run["output"]["said"]
