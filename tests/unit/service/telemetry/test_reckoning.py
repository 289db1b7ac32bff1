"""What is counted: exactly what was committed, under the class and lane it belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fanfold.adapters.aws.calls import Client
from fanfold.engine.errors import Throttled
from fanfold.engine.ports import IfAbsent, IfVersion
from fanfold.engine.record.run import Status
from fanfold.service.settings import Settings
from fanfold.service.telemetry.aws_usage import spend
from fanfold.service.telemetry.metric_buffer import taken
from fanfold.service.telemetry.metrics import Metric
from fanfold.service.worker.running_attempts import Stopwatch
from tests.support.builders import a_run
from tests.support.counts import keep_counts, totals
from tests.support.faults import Slow
from tests.support.http import TINY, Http, memory_services, settings_with
from tests.support.sweeping import Swept
from tests.support.virtual import virtually
from tests.support.world import World

MODEL = ("model",)
NORMAL = ("model", "normal")


def task(ms: int = 0, *needs: str, **given: Any) -> dict[str, Any]:
    retry = given.pop("retry", {})
    return {"task": "probe.play", "needs": list(needs), "input": {"ms": ms, **given}, "retry": retry}


DIAMOND = {
    "steps": {
        "seed": task(100),
        "left": task(200, "seed"),
        "right": task(300, "seed"),
        "combine": task(50, "left", "right"),
    }
}


@pytest.fixture(autouse=True)
def _nothing_counted_before(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_counts(monkeypatch)


@virtually
async def test_a_diamond_is_told_as_one_run_four_steps_and_the_times_it_took() -> None:
    run = await World().play(DIAMOND, within=60)

    told = taken()
    assert run.status is Status.SUCCEEDED
    assert told[Metric.RUNS_STARTED, MODEL] == [1]
    assert told[Metric.RUNS_SUCCEEDED, MODEL] == [1]
    assert told[Metric.STEPS, MODEL] == [4]
    assert run.started_at is not None
    assert run.finished_at is not None
    (wait,), (took,) = told[Metric.QUEUE_WAIT, NORMAL], told[Metric.RUN_DURATION, MODEL]
    assert wait == (run.started_at - run.created_at) / timedelta(milliseconds=1)
    assert took == (run.finished_at - run.created_at) / timedelta(milliseconds=1) >= 450
    assert {metric for metric, _ in told} == {
        Metric.RUNS_STARTED,
        Metric.RUNS_SUCCEEDED,
        Metric.STEPS,
        Metric.QUEUE_WAIT,
        Metric.RUN_DURATION,
        Metric.ENGINE_OVERHEAD,
    }


@virtually
async def test_overhead_is_neither_tasks_nor_the_waits_between_them() -> None:
    document = {"steps": {"a": task(10_000, fail=1, after=3, retry={"max_attempts": 2})}}
    run = await World().play(document, within=60)

    told = taken()
    assert run.status is Status.SUCCEEDED
    assert told[Metric.RUN_DURATION, MODEL] == [23_000]
    assert sum(told[Metric.ENGINE_OVERHEAD, MODEL]) < 1_000
    assert told[Metric.RETRIES, MODEL] == [1]


@virtually
async def test_what_writes_take_is_overhead_but_not_while_an_attempt_is_executing() -> None:
    world = World()
    await world.submit(await world.register(DIAMOND))
    process = world.process()
    process.runs.rule("put", Slow(0.04))
    await process.work()

    # Claim, seed's end, right's and combine's; the write of left's end goes on beside right.
    (overhead,) = taken()[Metric.ENGINE_OVERHEAD, MODEL]
    assert overhead == pytest.approx(160)


@virtually
async def test_a_failed_run_is_told_by_its_class_and_by_its_reason() -> None:
    await World().play({"steps": {"a": task(fail=1, final=True)}}, within=60)

    told = totals()
    assert (told[Metric.RUNS_FAILED, MODEL], told[Metric.FAILURES, ("step_failed",)]) == (1, 1)
    assert told[Metric.STEPS, MODEL] == 1


@virtually
async def test_a_workflow_is_told_only_where_that_is_asked_for() -> None:
    settings = Settings(chaos=True, workflow_metrics=True)
    await World(settings=settings).play({"steps": {"a": task(20)}}, within=60)

    told = totals()
    assert told[Metric.WORKFLOW_SUCCEEDED, ("flow",)] == 1
    assert told[Metric.WORKFLOW_DURATION, ("flow",)] > 0


@virtually
async def test_a_delayed_run_waits_from_when_it_may_begin() -> None:
    world = World()
    workflow = await world.register({"steps": {"a": task()}})
    now = world.services.clock.now()
    later = now + timedelta(minutes=10)
    envelope = await world.submit(workflow, deadline=later + timedelta(seconds=workflow.timeout_seconds))
    await asyncio.sleep(602)
    async with world.worker():
        await world.ended(envelope)

    (wait,) = taken()[Metric.QUEUE_WAIT, NORMAL]
    assert 2_000 <= wait < 3_000


@virtually
async def test_a_long_run_tells_of_its_renewals() -> None:
    await World().play({"steps": {"a": task(130_000, retry={})}}, within=600)

    assert totals()[Metric.LEASE_RENEWALS, MODEL] == 6  # of a lease of 60 s, at each third


@virtually
async def test_a_crash_is_told_with_the_attempt_it_interrupted() -> None:
    world = World()
    envelope = await world.submit(await world.register({"steps": {"a": task(20_000)}}))
    first = world.process()
    (message,) = await first.receive()
    first.take(message)
    await asyncio.sleep(5)
    await first.kill()
    async with world.worker():
        run = await world.ended(envelope)

    told = totals()
    assert run.epoch == 2
    assert (told[Metric.CRASHES, MODEL], told[Metric.INTERRUPTED, MODEL]) == (1, 1)
    assert (told[Metric.RUNS_STARTED, MODEL], told[Metric.STEPS, MODEL]) == (1, 1)


@virtually
async def test_a_holder_whose_write_is_refused_was_fenced_off() -> None:
    world = World()
    envelope = await world.submit(await world.register({"steps": {"a": task(5_000)}}))
    process = world.process()
    (message,) = await process.receive()
    held = process.take(message)
    await asyncio.sleep(1)
    row = await world.row(envelope)
    others = replace(row, owner="somebody else", version=row.version + 1, write_id="w" * 16)
    await world.runs.put(
        others, IfVersion(version=row.version, submission=row.submission), now=world.services.clock.now()
    )
    await held

    told = totals()
    assert (told[Metric.RUNS_LOST, MODEL], told[Metric.FENCED_WRITES, MODEL]) == (1, 1)
    assert (Metric.CLAIMS_LOST, MODEL) not in told


@virtually
async def test_of_two_who_claim_a_run_at_once_one_is_told_to_have_lost_it() -> None:
    world = World()
    await world.submit(await world.register({"steps": {"a": task(1_000)}}))
    first, second = world.process(), world.process()
    (message,) = await first.receive()
    await asyncio.gather(first.take(message), second.take(message))

    told = totals()
    assert (told[Metric.CLAIMS_LOST, MODEL], told[Metric.DUPLICATES, ()]) == (1, 1)
    assert told[Metric.RUNS_STARTED, MODEL] == 1


@virtually
async def test_items_of_maps_are_told_once_each() -> None:
    document = {"steps": {"m": {"map": {"over": "${input}", "task": "probe.play", "input": {}}}}}
    await World().play(document, list(range(7)), within=60)

    assert totals()[Metric.MAP_ITEMS, MODEL] == 7


async def test_submits_are_told_as_accepted_repeated_or_refused_with_the_reason() -> None:
    http = Http(services=memory_services(settings=settings_with(max_queue_depth=2)))
    await http("PUT", "/v1/workflows/tiny", TINY)
    statuses = [
        (await http("POST", "/v1/runs", {"workflow": "tiny"}, headers={"Idempotency-Key": key})).status
        for key in ("a", "a", "b", "c")
    ]
    await http("POST", "/v1/runs", {"workflow": "none"})
    await http("POST", "/v1/runs/batch", {"runs": [{"workflow": "tiny"}, {"workflow": "none"}]})

    told = totals()
    assert statuses == [202, 200, 202, 429]
    assert (told[Metric.RUNS_ACCEPTED, MODEL], told[Metric.DUPLICATES, ()]) == (2, 1)
    assert (told[Metric.RUNS_REFUSED, ()], told[Metric.REFUSALS, ("queue_full",)]) == (2, 2)


async def test_a_submit_that_meets_a_fault_or_a_limit_of_its_tenant_is_refused_for_that() -> None:
    class Throttling:
        async def reserve(self, *_: object, **__: object) -> None:
            raise Throttled("too much")

    http = Http(services=memory_services(slots=Throttling(), settings=settings_with(submits_per_minute=1)))
    await http("PUT", "/v1/workflows/tiny", TINY)
    statuses = [(await http("POST", "/v1/runs", {"workflow": "tiny"})).status for _ in range(2)]

    told = totals()
    assert statuses == [503, 429]
    assert (told[Metric.REFUSALS, ("unavailable",)], told[Metric.REFUSALS, ("rate_limited",)]) == (1, 1)


async def test_the_sweeper_tells_how_long_the_longest_overdue_run_is_overdue() -> None:
    swept = await Swept().with_tenants()
    await swept.sweep()
    assert taken()[Metric.OVERDUE, MODEL] == [0]
    now = swept.clock.now()
    for number, late in enumerate((-600, 30, 90)):
        waiting = a_run(number, status=Status.WAITING, due_at=now - timedelta(seconds=late), slot=None)
        await swept.services.runs.put(waiting, IfAbsent(), now=now)
    await swept.sweep()
    assert taken()[Metric.OVERDUE, MODEL] == [90]


def answering(*units: float) -> Callable[..., Any]:
    """A method of a client whose answer tells these units: of one table, or of each of several."""
    told = [{"CapacityUnits": each} for each in units]
    return lambda **_: {"ConsumedCapacity": told if len(told) > 1 else told[0]}


def test_a_call_that_fails_is_told_and_its_error_flies_on() -> None:
    def refused(**_: Any) -> Any:
        raise Throttled("no")

    with pytest.raises(Throttled):
        spend(Client.DYNAMODB_ONCE, "put_item", refused, {})
    assert totals() == {(Metric.TABLE_CALLS, ()): 1}


def test_calls_are_told_with_the_units_their_answers_name() -> None:
    put, deletion = {"TableName": "t"}, {"QueueUrl": "q"}
    spend(Client.DYNAMODB_ONCE, "put_item", answering(3.0), put)
    spend(Client.DYNAMODB, "batch_get_item", answering(1.5, 2.0), {})
    spend(Client.DYNAMODB, "query", lambda **_: {}, {})
    spend(Client.SQS, "delete_message_batch", lambda **_: {}, deletion)
    for operation in ("get_object", "put_object", "generate_presigned_url"):
        spend(Client.S3, operation, lambda **_: {}, {})

    assert put == {"TableName": "t", "ReturnConsumedCapacity": "TOTAL"}
    assert deletion == {"QueueUrl": "q"}
    assert totals() == {
        (Metric.TABLE_CALLS, ()): 3,
        (Metric.TABLE_WRITE_UNITS, ()): 3.0,
        (Metric.TABLE_READ_UNITS, ()): 3.5,
        (Metric.QUEUE_CALLS, ()): 1,
        (Metric.BUCKET_READS, ()): 1,
        (Metric.BUCKET_WRITES, ()): 1,
    }


def test_a_stopwatch_runs_while_anybody_uses_it() -> None:
    now = 0.0
    watch = Stopwatch(lambda: now)
    with watch.running():
        now = 2
        with watch.running():
            now = 5
        assert watch.seconds == 5
        now = 6
    now = 100
    assert watch.seconds == 6
    with watch.running():
        now = 101
    assert watch.seconds == 7
