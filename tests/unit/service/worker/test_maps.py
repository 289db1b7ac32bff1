"""Map steps: the same result wherever their items are worked on, and no item worked on twice without need."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from fanfold.adapters.batches import NoRoom
from fanfold.engine.payload import BlobRef, Json
from fanfold.engine.record.messages import Wake
from fanfold.engine.record.run import Run, Status, StepStatus
from fanfold.engine.rules.events import CancelAsked, PauseAsked, RedriveAsked, ResumeAsked
from fanfold.service.api.control import Control
from fanfold.service.maps import map_key
from fanfold.service.settings import Settings
from fanfold.service.wakes import send_wake
from fanfold.service.worker.map_batches import BatchEnd
from fanfold.service.workflow_cache import WorkflowCache
from tests.support.faults import Fault
from tests.support.virtual import virtually
from tests.support.world import RESUME_QUEUE, TENANT, World, consistent, journal_of, with_fan_out

EVERYWHERE = pytest.mark.parametrize("via", ["inline", "stepfunctions"])


def a_map(via: str = "stepfunctions", *, task: str = "probe.play", step: Any = None, **mapped: Any) -> dict[str, Any]:
    """A workflow of one map over the run's input, whose output is the map's."""
    of_map = {"over": "${input}", "task": task, "via": via, **mapped}
    return {"steps": {"each": {"map": of_map, "timeout": "60s", **(step or {})}}, "output": "${steps.each.output}"}


async def outcome(world: World, run: Run) -> Json:
    """The run's output, wherever it lies."""
    return await world.blobs.get(run.output) if isinstance(run.output, BlobRef) else run.output


def started(world: World) -> Counter[int | None]:
    """How often each item was begun."""
    return Counter(seen.index for seen in world.log if seen.what == "start")


# --- the same everywhere ------------------------------------------------------------------------


@EVERYWHERE
@virtually
async def test_outputs_come_in_item_order_whatever_ends_first(via: str) -> None:
    world = World(settings=with_fan_out())
    items = [{"ms": 5_000 - 1_000 * n, "out": n} for n in range(5)]
    run = await world.play(a_map(via, input="${item}"), items)
    consistent(run)
    assert (run.status, run.output) == (Status.SUCCEEDED, [0, 1, 2, 3, 4])
    assert started(world) == Counter(range(5))


@EVERYWHERE
@virtually
async def test_an_item_sees_itself_its_index_the_runs_input_and_the_steps_upstream(via: str) -> None:
    world = World(settings=with_fan_out())
    document = {
        "steps": {
            "first": {"task": "core.echo", "input": {"unit": "kg"}},
            "each": {
                "needs": ["first"],
                "map": {
                    "over": "${input.weights}",
                    "task": "core.echo",
                    "input": {"text": "${index}: ${item} ${steps.first.output.unit} of ${input.total}"},
                    "via": via,
                },
            },
        },
        "output": "${steps.each.output[].text}",
    }
    run = await world.play(document, {"weights": [3, 4], "total": 7})
    assert run.output == ["0: 3 kg of 7", "1: 4 kg of 7"]


@EVERYWHERE
@pytest.mark.parametrize("items", [[], [None], [{"out": 1}]], ids=["none", "a null", "one"])
@virtually
async def test_no_item_and_one_item_work(via: str, items: list[Any]) -> None:
    world = World(settings=with_fan_out())
    run = await world.play(a_map(via, task="core.echo"), items)
    consistent(run)
    assert (run.status, run.output) == (Status.SUCCEEDED, items)
    assert [e.data for e in run.journal if e.type == "map.finished"] == [{"items": len(items), "failed": 0}]


@EVERYWHERE
@pytest.mark.parametrize(
    ("given", "said"), [({"a": 1}, "an object"), (None, "null"), ("text", "a text"), (7, "a number")]
)
@virtually
async def test_what_is_no_list_fails_the_step_and_says_what_it_is(via: str, given: Any, said: str) -> None:
    world = World(settings=with_fan_out())
    run = await world.play(a_map(via), given)
    assert run.status is Status.FAILED
    fault = run.steps["each"].error
    assert fault is not None
    assert (fault.type, fault.message) == ("invalid_map", f"`over` must give a list, and gave {said}")


@EVERYWHERE
@virtually
async def test_more_items_than_the_limit_are_refused_by_its_name(via: str) -> None:
    world = World(settings=with_fan_out(max_map_items=10))
    run = await world.play(a_map(via, task="core.echo"), list(range(11)))
    fault = run.steps["each"].error
    assert fault is not None
    assert fault.type == "map_too_large"
    assert "11 items; the limit is 10 (setting max_map_items)" in fault.message
    assert (await world.play(a_map(via, task="core.echo"), list(range(10)))).status is Status.SUCCEEDED


FAILING = [{"out": 0}, {"fail": 9, "final": True}, {"out": 2}, {"fail": 9, "final": True}, {"out": 4}]


@EVERYWHERE
@pytest.mark.parametrize("tolerate", [{"count": 2}, {"percent": 40}])
@virtually
async def test_tolerated_failures_leave_null_and_are_listed(via: str, tolerate: dict[str, int]) -> None:
    world = World(settings=with_fan_out())
    run = await world.play(a_map(via, tolerate=tolerate), FAILING)
    assert (run.status, run.output) == (Status.SUCCEEDED, [0, None, 2, None, 4])
    state = run.steps["each"].map
    assert state is not None
    assert state.failed == 2
    assert [(error.index, error.message) for error in state.errors] == [(1, "failed for good"), (3, "failed for good")]


@EVERYWHERE
@pytest.mark.parametrize("tolerate", [None, {"count": 1}, {"percent": 39}])
@virtually
async def test_more_failures_than_are_tolerated_fail_the_step_and_name_the_first(via: str, tolerate: Any) -> None:
    world = World(settings=with_fan_out())
    run = await world.play(a_map(via, **({} if tolerate is None else {"tolerate": tolerate})), FAILING)
    consistent(run)
    fault = run.steps["each"].error
    assert (run.status, fault and fault.type) == (Status.FAILED, "items_failed")
    assert fault is not None
    assert fault.message.startswith("2 of 5 items failed, tolerated are ")
    assert "item 1: Fail: failed for good" in fault.message


@EVERYWHERE
@virtually
async def test_a_map_that_may_fail_lets_its_run_go_on(via: str) -> None:
    world = World(settings=with_fan_out())
    document = a_map(via, step={"on_failure": "continue"})
    document["steps"]["after"] = {
        "task": "core.echo",
        "needs": ["each"],
        "join": "settled",
        "input": "${steps.each.error.type}",
    }
    run = await world.play(document | {"output": "${steps.after.output}"}, FAILING)
    assert (run.status, run.output) == (Status.SUCCEEDED, "items_failed")


@EVERYWHERE
@virtually
async def test_items_are_retried_by_the_steps_policy_each_for_itself(via: str) -> None:
    world = World(settings=with_fan_out())
    retry = {"retry": {"max_attempts": 3, "backoff": "1s", "jitter": "none"}}
    run = await world.play(a_map(via, step=retry), [{"fail": 2, "out": "late"}, {"out": "at once"}])
    assert run.output == ["late", "at once"]
    assert started(world) == {0: 3, 1: 1}
    assert run.steps["each"].attempts == 1


@EVERYWHERE
@virtually
async def test_an_item_whose_input_can_not_be_computed_has_failed(via: str) -> None:
    world = World(settings=with_fan_out())
    document = a_map(via, task="core.echo", input="${length(item)}", tolerate={"count": 1})
    run = await world.play(document, ["four", 4])
    assert run.output == [4, None]
    state = run.steps["each"].map
    assert state is not None
    assert state.errors[0].type == "expression_error"


@EVERYWHERE
@virtually
async def test_items_over_the_inline_limit_go_through_s3(via: str) -> None:
    world = World(settings=with_fan_out())
    items = [{"noise": 20_000}, {"out": "small"}, {"noise": 9_000}]
    run = await world.play(a_map(via), items)
    assert isinstance(run.output, BlobRef)
    output = await outcome(world, run)
    assert [len(part) for part in output] == [26_668, 5, 12_000]


@EVERYWHERE
@virtually
async def test_outputs_that_are_too_big_together_fail_the_step_by_the_limits_name(via: str) -> None:
    world = World(settings=with_fan_out(max_map_bytes=30_000))
    run = await world.play(a_map(via), [{"noise": 20_000}, {"noise": 20_000}])
    fault = run.steps["each"].error
    assert fault is not None
    assert fault.type == "output_too_large"
    assert "max_map_bytes" in fault.message


@EVERYWHERE
@virtually
async def test_no_more_items_run_at_once_than_the_map_allows(via: str) -> None:
    world = World(settings=with_fan_out())
    run = await world.play(a_map(via, max_concurrency=8), [{"ms": 1_000}] * 40)
    assert run.status is Status.SUCCEEDED
    now, most = 0, 0
    for seen in sorted(world.log, key=lambda seen: (seen.at, seen.what == "start")):
        now += 1 if seen.what == "start" else -1
        most = max(most, now)
    assert most == 8


@EVERYWHERE
@virtually
async def test_a_redrive_repeats_only_what_has_not_succeeded(via: str) -> None:
    world = World(settings=with_fan_out())
    items = [{"out": n} for n in range(30)]
    workflow = await world.register(a_map(via, task="probe.moody"))
    envelope = await world.submit(workflow, items)
    async with world.worker():
        failed = await world.ended(envelope)
        assert failed.status is Status.FAILED
        moods = Counter(seen.index for seen in world.log)
        control = Control(world.services, WorkflowCache(world.services.catalog, world.settings.classes))
        await control.carry_out(failed, RedriveAsked(by="Ada"))
        run = await world.ended(envelope)
    consistent(run)
    assert (run.status, run.try_number) == (Status.SUCCEEDED, 2)
    assert run.output == list(range(30))
    again = Counter(seen.index for seen in world.log) - moods
    assert set(again) == {7, 8, 23}
    assert set(again.values()) == {1}


# --- where --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mapped", "step", "items", "where"),
    [
        ({"via": "auto"}, {}, 49, "inline"),
        ({"via": "auto"}, {}, 50, "stepfunctions"),
        ({"via": "stepfunctions"}, {"retry": {"on_interrupt": "fail"}}, 50, "inline"),
        ({"via": "stepfunctions"}, {"timeout": "10m"}, 50, "inline"),
    ],
    ids=["few", "many", "at most once", "items longer than a batch may be"],
)
@virtually
async def test_where_a_map_is_worked_on(mapped: Any, step: Any, items: int, where: str) -> None:
    world = World(settings=with_fan_out())
    document = a_map(mapped["via"], task="core.echo", step=step)
    run = await world.play(document, list(range(items)))
    assert await outcome(world, run) == list(range(items))
    assert [e.data["via"] for e in run.journal if e.type == "map.started" and e.data] == [where]


@virtually
async def test_without_a_state_machine_every_map_stays_with_its_worker() -> None:
    world = World(settings=Settings(chaos=True))
    run = await world.play(a_map("stepfunctions", task="core.echo"), list(range(200)))
    assert len(await outcome(world, run)) == 200
    assert not world.fan_out.inner.executions


# --- elsewhere ----------------------------------------------------------------------------------


@virtually
async def test_a_run_whose_map_is_elsewhere_is_let_go_and_holds_no_worker() -> None:
    world = World(settings=with_fan_out())
    envelope = await world.submit(await world.register(a_map()), [{"ms": 30_000}])
    async with world.worker():
        await asyncio.sleep(10)
        run = await world.row(envelope)
        assert (run.status, run.steps["each"].status) == (Status.WAITING, StepStatus.WAITING)
        ended = await world.ended(envelope, within=25)
    assert journal_of(ended) == [
        "run.accepted",
        "run.claimed",
        "step.started each",
        "map.started each",
        "run.suspended",
        "run.claimed",
        "map.finished each",
        "step.succeeded each",
        "run.succeeded",
    ]


@virtually
async def test_ten_thousand_items_cost_a_record_for_each_batch_and_a_few_writes_of_the_run() -> None:
    world = World(settings=with_fan_out())
    workflow = await world.register(a_map(task="core.echo", max_concurrency=200))
    process = world.process()
    envelope = await world.submit(workflow, list(range(10_000)))
    async with process.worker():
        run = await world.ended(envelope)
    assert await outcome(world, run) == list(range(10_000))
    records = await world.map_records.read(map_key(run, "each"))
    assert len(records) == 10_000 / 25
    assert run.version <= 5


@virtually
async def test_a_map_that_never_rings_is_found_at_its_next_look() -> None:
    world = World(settings=with_fan_out())
    envelope = await world.submit(await world.register(a_map()), [{"ms": 50_000}])
    world.rings.rule("send", Fault.LOST)
    async with world.worker():
        ended = await world.ended(envelope, within=302)
    assert ended.status is Status.SUCCEEDED


@virtually
async def test_looks_at_a_map_that_goes_on_claim_nothing_and_become_rare() -> None:
    world = World(settings=with_fan_out())
    document = a_map(step={"timeout": "4m"}, max_concurrency=1) | {"timeout": "7d"}
    envelope = await world.submit(await world.register(document), [{"ms": 200_000}] * 100)
    async with world.worker():
        for _ in range(5 * 60):
            await asyncio.sleep(60)
            run = await world.row(envelope)
            if run.due_at is not None and run.due_at <= world.services.clock.now():
                await send_wake(
                    world.services, run, run.due_at
                )  # as the sweeper does for what is due in over 15 minutes
        assert run.epoch == 1
        state = run.steps["each"].map
        assert state is not None
        # After 5 min, then 10, 20, 40, and each hour: up to 5 h of waiting.
        assert state.polls == 7


@virtually
async def test_an_execution_that_is_broken_off_fails_the_items_without_a_result() -> None:
    world = World(settings=with_fan_out())
    document = a_map(max_concurrency=4, tolerate={"percent": 90})
    envelope = await world.submit(await world.register(document), [{"ms": 1_000}] * 2 + [{"ms": 50_000}] * 8)
    async with world.worker():
        await asyncio.sleep(10)
        await world.fan_out.inner.abort()
        run = await world.ended(envelope, within=10)
    assert run.output == ["each", "each"] + [None] * 8
    state = run.steps["each"].map
    assert state is not None
    assert {error.type for error in state.errors} == {"no_result"}


@virtually
async def test_a_start_that_is_refused_for_a_while_is_made_up_for() -> None:
    world = World(settings=with_fan_out())
    process = world.process()
    process.fan_out.plan("start", *[Fault.THROTTLED] * 4)
    envelope = await world.submit(await world.register(a_map(task="core.echo")), [1, 2])
    async with process.worker():
        run = await world.ended(envelope, within=180)
    assert run.output == [1, 2]


@virtually
async def test_a_start_that_was_lost_is_made_up_for_by_the_next_look() -> None:
    world = World(settings=with_fan_out())
    process = world.process()
    envelope = await world.submit(await world.register(a_map(task="core.echo")), [1, 2])
    process.fan_out.rule("start", Fault.LOST)
    async with process.worker():
        await asyncio.sleep(2)
        await process.kill()
    async with world.worker():
        run = await world.ended(envelope, within=400)
    assert (run.status, run.output) == (Status.SUCCEEDED, [1, 2])


@virtually
async def test_a_ring_that_comes_twice_or_late_changes_nothing() -> None:
    world = World(settings=with_fan_out())
    envelope = await world.submit(await world.register(a_map()), [{"ms": 20_000}])
    wake = Wake(
        tenant=TENANT,
        run_id=envelope.run_id,
        submission=envelope.submission,
        class_name="model",
        map_step="each",
    )
    async with world.worker():
        await asyncio.sleep(5)
        for _ in range(3):
            await world.queue.send(RESUME_QUEUE, wake)  # too early
        await asyncio.sleep(1)
        assert (await world.row(envelope)).epoch == 1
        run = await world.ended(envelope, within=30)
        for _ in range(3):
            await world.queue.send(RESUME_QUEUE, wake)
        await asyncio.sleep(5)
        assert await world.row(envelope) == run
    assert run.status is Status.SUCCEEDED
    assert started(world) == {0: 1}


@virtually
async def test_a_map_that_ends_while_the_run_is_held_is_seen_by_its_holder() -> None:
    world = World(settings=with_fan_out())
    document = a_map()
    document["steps"]["long"] = {"task": "probe.play", "input": {"ms": 100_000}}
    document["steps"]["after"] = {"task": "probe.play", "needs": ["each"], "input": {}}
    envelope = await world.submit(await world.register(document), [{"ms": 10_000}])
    async with world.worker():
        run = await world.ended(envelope)
    consistent(run)
    after = run.steps["after"].started_at
    assert after is not None
    assert (after - run.created_at).total_seconds() < 15
    assert run.epoch == 1


@virtually
async def test_a_batch_that_comes_twice_works_on_nothing() -> None:
    world = World(settings=with_fan_out())
    workflow = await world.register(a_map())
    envelope = await world.submit(workflow, [{"out": 1}, {"out": 2}])
    world.fan_out.inner.work = None  # stands still: the batches are ours
    async with world.worker():
        await asyncio.sleep(1)
        event = {
            "tenant": TENANT,
            "run": envelope.run_id,
            "submission": envelope.submission,
            "step": "each",
            "try": 1,
            "batch": {"from": 0, "to": 1},
        }
        assert await world.batch(event) is BatchEnd.RECORDED
        assert await world.batch(event) is BatchEnd.KNOWN
        assert started(world) == {0: 1}
        for strange in ({"try": 2}, {"submission": "other"}, {"run": "other"}, {"batch": {"from": 1, "to": 1}}):
            assert await world.batch(event | strange) is BatchEnd.VOID
        await world.fan_out.inner.abort()
        run = await world.ended(envelope)
    assert run.status is Status.FAILED
    assert await world.batch(event | {"batch": {"from": 1, "to": 2}}) is BatchEnd.VOID
    assert started(world) == {0: 1}


@virtually
async def test_a_batch_whose_function_keeps_dying_costs_its_own_items() -> None:
    world = World(settings=with_fan_out())
    envelope = await world.submit(
        await world.register(a_map(max_concurrency=4, tolerate={"count": 1})), [{"out": n} for n in range(6)]
    )
    calls: Counter[int] = Counter()

    async def dying(event: Any) -> Any:
        calls[event["batch"]["from"]] += 1
        if event["batch"]["from"] == 3:
            raise RuntimeError("the function is gone")
        return await world.batch(event)

    world.fan_out.inner.work = dying
    async with world.worker():
        run = await world.ended(envelope)
    assert run.output == [0, 1, 2, None, 4, 5]
    assert calls[3] == 3


@virtually
async def test_a_runs_timeout_ends_its_map_elsewhere() -> None:
    world = World(settings=with_fan_out())
    document = a_map() | {"timeout": "30s"}
    document["steps"]["each"]["timeout"] = "30s"
    envelope = await world.submit(await world.register(document), [{"ms": 29_000}] * 100)
    async with world.worker():
        run = await world.ended(envelope, within=200)
        assert run.reason == "timed_out"
        assert run.steps["each"].status is StepStatus.CANCELLED
        await asyncio.sleep(60)
        assert list(world.fan_out.inner.executions.values()) == [False]
    assert sum(started(world).values()) == 80  # two rounds of 40; no third one


@virtually
async def test_cancelling_a_run_stops_its_map_and_a_batch_that_starts_all_the_same_does_nothing() -> None:
    world = World(settings=with_fan_out())
    envelope = await world.submit(await world.register(a_map(max_concurrency=4)), [{"ms": 20_000}] * 40)
    control = Control(world.services, WorkflowCache(world.services.catalog, world.settings.classes))
    async with world.worker():
        await asyncio.sleep(5)
        await control.carry_out(await world.row(envelope), CancelAsked(by="Ada"))
        run = await world.row(envelope)
        assert (run.status, run.steps["each"].status) == (Status.CANCELLED, StepStatus.CANCELLED)
        assert list(world.fan_out.inner.executions.values()) == [False]
        event = {"tenant": TENANT, "run": run.id, "submission": run.submission, "step": "each", "try": 1}
        assert await world.batch(event | {"batch": {"from": 20, "to": 21}}) is BatchEnd.VOID
        await asyncio.sleep(60)
        assert await world.row(envelope) == run
    assert set(started(world)) == {0, 1, 2, 3}


@virtually
async def test_a_map_goes_on_while_its_run_is_paused_and_is_seen_at_its_resumption() -> None:
    world = World(settings=with_fan_out())
    envelope = await world.submit(await world.register(a_map()), [{"ms": 20_000, "out": "done"}])
    control = Control(world.services, WorkflowCache(world.services.catalog, world.settings.classes))
    async with world.worker():
        await asyncio.sleep(5)
        await control.carry_out(await world.row(envelope), PauseAsked(by="Ada"))
        await asyncio.sleep(100)
        paused = await world.row(envelope)
        assert (paused.status, paused.steps["each"].status) == (Status.PAUSED, StepStatus.WAITING)
        await control.carry_out(paused, ResumeAsked(by="Ada"))
        run = await world.ended(envelope, within=10)
    assert run.output == ["done"]


@virtually
async def test_a_holder_that_dies_beside_an_open_map_loses_nothing_of_it() -> None:
    world = World(settings=with_fan_out())
    document = a_map()
    document["steps"]["long"] = {"task": "probe.play", "input": {"ms": 100_000}}
    envelope = await world.submit(await world.register(document), [{"ms": 10_000, "out": "done"}])
    first = world.process()
    async with first.worker():
        await asyncio.sleep(5)
        await first.kill()
    async with world.worker():
        run = await world.ended(envelope, within=600)
    consistent(run)
    assert (run.status, run.output) == (Status.SUCCEEDED, ["done"])
    assert started(world)[0] == 1


# --- in the worker ------------------------------------------------------------------------------


@virtually
async def test_a_quick_map_in_its_worker_leaves_no_record_of_its_own() -> None:
    world = World(settings=with_fan_out())
    run = await world.play(a_map("inline", task="core.echo"), list(range(40)))
    assert await world.map_records.read(map_key(run, "each")) == []
    assert run.version <= 4


@virtually
async def test_a_worker_that_dies_costs_only_the_items_under_way() -> None:
    world = World(settings=with_fan_out())
    envelope = await world.submit(
        await world.register(a_map("inline", max_concurrency=1)), [{"ms": 10_000, "out": n} for n in range(6)]
    )
    first = world.process()
    async with first.worker():
        await asyncio.sleep(35)
        await first.kill()
    async with world.worker():
        run = await world.ended(envelope)
    consistent(run)
    assert run.output == list(range(6))
    assert started(world) == {0: 1, 1: 1, 2: 1, 3: 2, 4: 1, 5: 1}


@virtually
async def test_a_worker_out_of_time_hands_the_rest_of_a_map_on() -> None:
    world = World(settings=with_fan_out())
    process = world.process()
    items = [{"ms": 50_000, "out": n} for n in range(6)]
    envelope = await world.submit(await world.register(a_map("inline", max_concurrency=1)), items)
    (message,) = await process.receive()
    stop_before = process.services.clock.now() + timedelta(seconds=180)
    await process.take(message, stop_before=stop_before)
    async with world.worker():
        run = await world.ended(envelope)
    consistent(run)
    assert run.output == list(range(6))
    assert started(world) == Counter(range(6))
    assert (run.epoch, run.steps["each"].attempts, run.steps["each"].interruptions) == (2, 2, 0)


@virtually
async def test_at_most_once_holds_for_the_items_of_a_map() -> None:
    world = World(settings=with_fan_out())
    document = a_map("stepfunctions", step={"retry": {"max_attempts": 1, "on_interrupt": "fail"}}, max_concurrency=2)
    envelope = await world.submit(await world.register(document), [{"ms": 10_000}] * 100)
    first = world.process()
    async with first.worker():
        await asyncio.sleep(15)
        await first.kill()
    async with world.worker():
        run = await world.ended(envelope)
    fault = run.steps["each"].error
    assert fault is not None
    assert fault.type == "interrupted"
    assert max(started(world).values()) == 1


# --- no room --------------------------------------------------------------------------------------


@virtually
async def test_items_that_were_never_begun_for_want_of_room_are_asked_for_again_and_none_has_failed() -> None:
    world = World(settings=with_fan_out())
    envelope = await world.submit(await world.register(a_map(max_concurrency=8)), [{"out": n} for n in range(40)])
    room = {"left": 3}

    async def with_little_room(event: Any) -> Any:
        if room["left"] == 0:
            raise NoRoom
        room["left"] -= 1
        return await world.batch(event)

    world.fan_out.inner.work = with_little_room
    async with world.worker():
        for _ in range(8):  # half an hour without much room: far beyond what the state machine waits for
            await asyncio.sleep(240)
            room["left"] = 2
        room["left"] = 1_000
        run = await world.ended(envelope)
    assert (run.status, run.output) == (Status.SUCCEEDED, list(range(40)))
    assert set(started(world).values()) == {1}
    # Each of another name, and none for what was done before.
    assert len(world.fan_out.inner.executions) > 3
    listed = [json.loads(world.blobs.read(e.batches)) for e in world.fan_out.inner.started]
    assert [sum(b["to"] - b["from"] for b in batches) for batches in listed][:2] == [40, 34]


@virtually
async def test_a_map_that_finds_no_room_is_asked_for_ever_more_rarely_until_its_runs_time_is_over() -> None:
    world = World(settings=with_fan_out())
    document = a_map() | {"timeout": "1h"}
    envelope = await world.submit(await world.register(document), [{"out": n} for n in range(4)])

    async def without_room(event: Any) -> Any:
        raise NoRoom

    world.fan_out.inner.work = without_room
    async with world.worker():
        run = await world.ended(envelope, within=4_000)
    assert (run.status, run.error and run.error.type) == (Status.FAILED, "timed_out")
    # 10, 20, 40, 80, 160 s, then every 5 minutes of the hour.
    assert 14 <= len(world.fan_out.inner.executions) <= 17


@virtually
async def test_a_worker_that_holds_the_run_asks_again_too() -> None:
    world = World(settings=with_fan_out())
    document = a_map()
    document["steps"]["beside"] = {"task": "probe.play", "input": {"out": 1, "ms": 100_000}, "timeout": "200s"}
    envelope = await world.submit(await world.register(document), [{"out": n} for n in range(4)])
    refused = {"left": 2}

    async def at_first_without_room(event: Any) -> Any:
        if refused["left"]:
            refused["left"] -= 1
            raise NoRoom
        return await world.batch(event)

    world.fan_out.inner.work = at_first_without_room
    async with world.worker():
        run = await world.ended(envelope)
    assert run.status is Status.SUCCEEDED
    assert len(world.fan_out.inner.executions) == 2
    assert run.steps["each"].finished_at < run.steps["beside"].finished_at  # type: ignore[operator]  # both ended
