"""The documented limits of what goes in and out: what is at one passes, what is over it is refused with its name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fanfold.engine.payload import BlobRef
from fanfold.engine.ports import IfAbsent
from fanfold.engine.record.run import Run, Status
from fanfold.service.settings import Settings
from tests.support.builders import a_run
from tests.support.http import TINY, Http, memory_services
from tests.support.virtual import run as virtually
from tests.support.world import World

SHIPPED = Settings()


@pytest.fixture
async def http() -> Http:
    http = Http(services=memory_services())
    assert (await http("PUT", "/v1/workflows/tiny", TINY)).status == 201
    return http


def text_of(size: int) -> str:
    """A text that has so many bytes as JSON."""
    return "x" * (size - 2)


# --- inputs -------------------------------------------------------------------------------------------------------


def a_body_of(size: int) -> str:
    frame = '{"workflow":"tiny","input":""}'
    return frame[:-2] + "x" * (size - len(frame)) + frame[-2:]


async def test_a_body_has_at_most_five_million_bytes(http: Http) -> None:
    assert (await http("POST", "/v1/runs", a_body_of(5_000_000))).status == 202
    reply = await http("POST", "/v1/runs", a_body_of(5_000_001))
    assert (reply.status, reply.json["type"]) == (413, "too-large")
    assert reply.json["detail"].startswith("max_body_bytes: ")
    assert "5,000,000" in reply.json["detail"]


async def test_an_input_over_8_kb_is_kept_in_the_bucket_below_its_run(http: Http) -> None:
    for size, kept in ((SHIPPED.inline_bytes, False), (SHIPPED.inline_bytes + 1, True)):
        accepted = (await http("POST", "/v1/runs", {"workflow": "tiny", "input": text_of(size)})).json
        shown = (await http("GET", f"/v1/runs/{accepted['id']}")).json["input"]
        assert isinstance(shown, dict) == kept
        if kept:
            assert shown["$ref"].startswith(f"acme/{accepted['id']}/")
            assert (shown["bytes"], len(shown["sha256"])) == (size, 64)


@pytest.mark.parametrize(
    ("given", "pointer", "named"),
    [
        ({"delay": 901}, "/delay", "900"),
        ({"tags": {f"t{n}": "" for n in range(21)}}, "/tags", "20"),
        ({"tags": {"t": "x" * 257}}, "/tags/t", "256"),
        ({"tags": {"x" * 65: ""}}, "/tags/" + "x" * 65 + "/[key]", "64"),
        ({"version": "x" * 101}, "/version", "100"),
        ({"workflow": "x" * 64}, "/workflow", "62"),
    ],
)
async def test_what_is_over_a_limit_of_a_submit_is_refused_with_its_place_and_the_limit(
    http: Http, given: dict[str, Any], pointer: str, named: str
) -> None:
    reply = await http("POST", "/v1/runs", {"workflow": "tiny", **given})
    assert (reply.status, reply.json["title"]) == (422, "The request is invalid")
    (error,) = reply.json["errors"]
    assert error["pointer"] == pointer
    assert named in error["detail"]


async def test_a_batch_has_at_most_a_hundred_runs_and_one_that_is_wrong_spoils_no_other(http: Http) -> None:
    reply = await http("POST", "/v1/runs/batch", {"runs": [{"workflow": "tiny"}] * 101})
    assert reply.status == 422
    assert "100" in reply.json["detail"]
    wrong = {"workflow": "tiny", "delay": 901}
    reply = await http("POST", "/v1/runs/batch", {"runs": [{"workflow": "tiny"}, wrong, {"workflow": "tiny"}]})
    assert [result["status"] for result in reply.json["results"]] == [202, 422, 202]
    assert reply.json["results"][1]["problem"]["title"] == "The request is invalid"


async def test_a_document_that_is_wrong_is_called_a_workflow_and_a_submit_is_not(http: Http) -> None:
    reply = await http("PUT", "/v1/workflows/tiny", {"name": "tiny", "steps": {}})
    assert (reply.status, reply.json["type"], reply.json["title"]) == (
        422,
        "invalid-document",
        "The workflow is invalid",
    )


# --- outputs ------------------------------------------------------------------------------------------------------


def ended(size: int) -> Run:
    """A run whose one step has an output of so many bytes."""
    document = {
        "name": "big",
        "steps": {"only": {"task": "chaos.output", "input": {"bytes": size}}},
        "output": "${steps.only.output}",
    }

    async def main() -> Run:
        return await World().play(document)

    return virtually(main())


def test_an_output_over_8_kb_is_kept_in_the_bucket() -> None:
    for size, kept in ((SHIPPED.inline_bytes, False), (SHIPPED.inline_bytes + 1, True)):
        run = ended(size)
        assert run.status is Status.SUCCEEDED
        assert isinstance(run.steps["only"].output, BlobRef) == kept
        assert isinstance(run.output, BlobRef) == kept


def test_a_tasks_output_has_at_most_four_million_bytes() -> None:
    assert ended(SHIPPED.max_output_bytes).status is Status.SUCCEEDED
    run = ended(SHIPPED.max_output_bytes + 1)
    assert run.status is Status.FAILED
    fault = run.steps["only"].error
    assert fault is not None
    assert fault.type == "output_too_large"
    assert str(SHIPPED.max_output_bytes) in fault.message


async def test_values_written_into_one_answer_have_at_most_fifty_million_bytes(http: Http) -> None:
    big = BlobRef(key="acme/big", bytes=25_000_001, sha256="0" * 64)
    run = a_run(input=big, output=big)
    await http.services.runs.put(run, IfAbsent(), now=http.services.clock.now())
    reply = await http("GET", f"/v1/runs/{run.id}?inline=true")
    assert (reply.status, reply.json["type"]) == (413, "too-large")
    assert reply.json["detail"].startswith("inline: ")
    assert "50,000,000" in reply.json["detail"]


async def test_an_answer_over_five_million_bytes_is_fetched_at_a_presigned_address(http: Http) -> None:
    half = await http.services.blobs.put("acme/half", json.dumps("x" * 2_600_000).encode())
    await http.services.runs.put(a_run(1, input=half), IfAbsent(), now=http.services.clock.now())
    await http.services.runs.put(a_run(2, input=half, output=half), IfAbsent(), now=http.services.clock.now())
    small, big = [await http("GET", f"/v1/runs/{a_run(number).id}?inline=true") for number in (1, 2)]
    assert (small.status, big.status, big.text) == (200, 303, "")
    assert big.headers["location"]
    assert (await http("GET", f"/v1/runs/{a_run(2).id}")).status == 200
