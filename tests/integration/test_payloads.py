"""Values too big for a record, through the whole stack: by reference, behind a presigned address, or written out."""

from __future__ import annotations

import hashlib

import httpx
import pytest

from fanfold import Client

pytestmark = pytest.mark.emulator


def test_a_big_value_is_told_by_reference_and_read_at_its_address_without_a_token(client: Client) -> None:
    given = {"name": "ä" * 10_000}
    run_id = client.submit("tiny", given)["id"]
    run = client.wait(run_id, timeout=60)
    assert run["status"] == "succeeded"
    for told, value in ((run["input"], given), (run["output"], {"greeting": f"hello {given['name']}"})):
        assert set(told) == {"$ref", "bytes", "sha256", "url"}
        read = httpx.get(told["url"], trust_env=False, timeout=30)
        assert read.json() == value
        assert (len(read.content), hashlib.sha256(read.content).hexdigest()) == (told["bytes"], told["sha256"])
    assert run["steps"]["hello"]["output"]["$ref"]
    whole = client.get(run_id, inline=True, steps="none")
    assert (whole["input"], whole["steps"]) == (given, {})
    assert whole["output"]["greeting"].startswith("hello ä")


def test_a_value_that_fits_is_told_as_it_is(client: Client) -> None:
    given = {"name": "x" * (8_192 - len('{"name":""}'))}
    accepted = client.submit("tiny", given)
    assert client.get(accepted["id"])["input"] == given
