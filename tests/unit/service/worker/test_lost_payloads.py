"""A payload that is gone fails the step that reads it, where it is read: in a decision."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fanfold.engine.payload import BlobRef
from fanfold.engine.record.run import ForkOrigin, Reason, Run, Status
from fanfold.service.worker.dispositions import Ack
from tests.support.virtual import virtually
from tests.support.world import RESUME_QUEUE, World, consistent

BIG = "x" * 20_000
SLOW = {
    "task": "probe.play",
    "input": {"fail": 1},
    "retry": {"max_attempts": 2, "backoff": "30s", "jitter": "none"},
}
READER: dict[str, dict[str, Any]] = {
    "input": {"task": "core.echo", "input": "${steps.a.output}"},
    "when": {"task": "core.echo", "when": "${length(steps.a.output) > `0`}"},
    "until": {"wait": {"until": "${steps.a.output}"}},
    "over": {"map": {"task": "core.echo", "over": ["${steps.a.output}"]}},
    "item": {"map": {"task": "core.echo", "over": "${[`1`]}", "input": "${steps.a.output}"}},
}


async def read_after_loss(reader: dict[str, Any], **document: Any) -> Run:
    """A run whose first step's output is gone by the time another worker goes on with it."""
    steps = {"a": {"task": "probe.play", "input": {"out": BIG}}, "slow": SLOW}
    if reader:
        steps["b"] = {**reader, "needs": ["a", "slow"]}
    world = World()
    envelope = await world.submit(await world.register({"steps": steps, **document}))
    await world.process().work()
    output = (await world.row(envelope)).steps["a"].output
    assert isinstance(output, BlobRef)
    del world.blobs._objects[output.key]
    await asyncio.sleep(20)
    assert await world.process().work(RESUME_QUEUE) == Ack()
    run = await world.row(envelope)
    consistent(run)
    return run


@pytest.mark.parametrize("slot", READER)
@virtually
async def test_a_step_that_reads_what_is_lost_fails_as_input_unavailable(slot: str) -> None:
    run = await read_after_loss(READER[slot])
    assert run.status is Status.FAILED
    assert run.error is not None
    assert (run.error.type, run.steps["b"].status) == ("input_unavailable", "failed")
    assert "there is no object" in run.error.message


@virtually
async def test_a_step_that_may_fail_leaves_its_run_to_go_on_without_what_is_lost() -> None:
    run = await read_after_loss({**READER["input"], "on_failure": "continue"}, output="${steps.b.error.type}")
    assert (run.status, run.output) == (Status.SUCCEEDED, "input_unavailable")


@virtually
async def test_a_run_whose_output_is_lost_fails_as_input_unavailable() -> None:
    run = await read_after_loss({}, output={"all": "${steps.a.output}"})
    assert run.status is Status.FAILED
    assert run.error is not None
    assert run.error.type == "input_unavailable"
    assert run.error.message.startswith("the workflow's output: there is no object")


@virtually
async def test_a_fork_of_which_what_it_takes_over_is_lost_fails_as_input_unavailable() -> None:
    world = World()
    flow = await world.register({"steps": {"a": {"task": "core.echo"}}})
    gone = BlobRef(key="acme/r1/s/fork", bytes=9, sha256="0" * 64)
    origin = ForkOrigin(run_id="r1", from_step="a", checkpoints=gone, since=world.services.clock.now())
    envelope = await world.submit(flow, origin=origin)
    assert await world.process().work() == Ack()
    run = await world.row(envelope)
    consistent(run)
    assert (run.status, run.reason) == (Status.FAILED, Reason.STEP_FAILED)
    assert run.error is not None
    assert run.error.type == "input_unavailable"
