"""What one decision may spend and read: what is more is for the next one, and no run gets stuck by it."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from fanfold.engine.language import budget, maps
from fanfold.engine.payload import BlobRef, ValuesMissing
from fanfold.engine.record.run import Reason, Status
from fanfold.engine.rules.decide import Decision, decide
from fanfold.engine.rules.effects import StartAttempt
from fanfold.engine.rules.events import AttemptSucceeded, Claimed, RecordReloaded
from fanfold.service.settings import Settings
from fanfold.service.worker import map_items
from fanfold.service.worker.running_attempts import RunningAttempts
from tests.support.faults import Fault
from tests.support.game import LIMITS, Game, a_flow
from tests.support.virtual import virtually
from tests.support.world import RESUME_QUEUE, World, consistent

TEXT = "x" * 4_000_000
NUMBERS = list(range(80_000))


def blob(key: str, size: int = 4_000_000) -> BlobRef:
    return BlobRef(key=key, bytes=size, sha256="0" * 64)


def started(decision: Decision) -> list[str]:
    return [effect.step for effect in decision.effects if isinstance(effect, StartAttempt)]


def to_the_end(game: Game, *first: Any, most: int = 1_000) -> list[Decision]:
    """Decide for as long as there is more to do."""
    decisions = [game.feed(*first)]
    while decisions[-1].more:
        assert len(decisions) < most
        decisions.append(game.feed(RecordReloaded()))
    return decisions


def claim() -> Claimed:
    return Claimed(owner="c" * 16, worker="w")


def wide(count: int, step: dict[str, Any], **more: Any) -> Game:
    return Game(a_flow({f"s{n}": step for n in range(count)}, **more))


def test_ready_steps_that_each_make_megabytes_of_text_start_few_by_few() -> None:
    flow = a_flow({f"s{n}": {"input": {"x": "it is ${input}"}} for n in range(30)})
    game = Game(flow, input=TEXT)
    decisions = to_the_end(game, claim())
    names = [started(decision) for decision in decisions]
    assert [name for few in names for name in few] == list(flow.steps)
    assert max(map(len, names)) <= 2
    starts = [effect for decision in decisions for effect in decision.effects if isinstance(effect, StartAttempt)]
    # They may wait long for their turn, and are made again then.
    assert {(effect.large, effect.input) for effect in starts} == {(True, None)}


def test_costly_conditions_are_judged_few_by_few() -> None:
    when = "${length(sort_by(input, &@)) > `0`}"
    game = Game(a_flow({f"s{n}": {"when": when} for n in range(20)}), input=NUMBERS)
    decisions = to_the_end(game, claim())
    assert [len(started(decision)) for decision in decisions] == [1] * 20


def test_many_cheap_steps_start_in_one_decision() -> None:
    game = wide(1_000, {"input": {"x": "${input}"}})
    (decision,) = to_the_end(game, claim())
    assert len(started(decision)) == 1_000


def test_ten_thousand_cheap_steps_start_in_some() -> None:
    game = wide(10_000, {})
    decisions = to_the_end(game, claim())
    assert 5 < len(decisions) < 10
    assert sum(len(started(decision)) for decision in decisions) == 10_000


def test_what_a_step_may_cost_does_not_depend_on_the_steps_beside_it() -> None:
    most = {"input": {"x": "${length(input[?@ > `-1`])} ${length(input)}"}}
    for count in (1, 5):
        game = Game(a_flow({f"s{n}": most for n in range(count)}), input=NUMBERS)
        to_the_end(game, claim())
        assert set(game.statuses.values()) == {"running"}


def test_a_step_above_its_budget_fails_whatever_is_beside_it() -> None:
    costly = {"when": "${length(sort_by(input, &@)[*].[@, @]) > `0`}", "on_failure": "continue"}
    for count in (1, 5):
        game = Game(a_flow({f"s{n}": costly for n in range(count)}), input=NUMBERS)
        to_the_end(game, claim())
        assert set(game.statuses.values()) == {"failed"}
        assert {state.error.type for state in game.run.steps.values() if state.error} == {"expression_error"}


def test_the_expressions_of_one_step_share_its_budget() -> None:
    half = "${length(input[?@ > `9`]) > `0`}"
    steps = {"both": {"when": half, "input": {"x": half}}, "one": {"when": half}}
    game = Game(a_flow({name: {**step, "on_failure": "continue"} for name, step in steps.items()}), input=NUMBERS)
    to_the_end(game, claim())
    assert game.statuses == {"both": "failed", "one": "running"}


# --- payloads -------------------------------------------------------------------------------------------------------


def test_the_payloads_that_one_decision_reads_are_bounded_and_asked_for_together() -> None:
    count = 12
    steps: dict[str, Any] = {f"p{n}": {} for n in range(count)}
    steps |= {
        f"s{n}": {"needs": [f"p{n}"], "join": "settled", "input": f"${{steps.p{n}.output}}"} for n in range(count)
    }
    steps |= {f"s{n}": {**steps[f"s{n}"], "needs": [f"p{m}" for m in range(count)]} for n in range(count)}
    game = Game(a_flow(steps)).claim()
    for n in range(count - 1):
        game.succeed(f"p{n}", out=blob(f"k{n}"))
    asked: list[int] = []
    starts: list[list[str]] = []
    event: Any = success(game, f"p{count - 1}", blob(f"k{count - 1}"))
    more = True
    while more:
        decision = provided(game, event, asked)
        starts.append(started(decision))
        event, more = RecordReloaded(), decision.more
    assert asked == [16_000_000] * 3
    assert list(map(len, starts)) == [4, 4, 4]


def provided(game: Game, event: Any, asked: list[int]) -> Decision:
    """Decide, and load what is asked for; `asked` is told of the bytes of each request."""
    loaded: dict[str, Any] = {}
    game.loaded = loaded
    while True:
        try:
            return game.feed(event)
        except ValuesMissing as missing:
            asked.append(sum(ref.bytes for ref in missing.refs if isinstance(ref, BlobRef)))
            loaded |= {ref.key: "big" for ref in missing.refs}


def success(game: Game, step: str, out: Any) -> Any:
    return AttemptSucceeded(step=step, attempt=game.run.steps[step].attempts, output=out)


def test_a_step_that_reads_more_than_any_may_fails_and_nothing_is_loaded_for_it() -> None:
    needs = [f"p{n}" for n in range(11)]
    steps: dict[str, Any] = {name: {} for name in needs}
    steps["all"] = {"needs": needs, "input": [f"${{steps.{name}.output}}" for name in needs]}
    game = Game(a_flow(steps)).claim()
    for name in needs:
        game.succeed(name, out=blob(name))
    assert (game.run.status, game.run.reason) == (Status.FAILED, Reason.STEP_FAILED)
    assert game.run.error is not None
    assert game.run.error.type == "expression_error"
    assert "44,000,000 bytes of payloads; the limit of a step is 40,000,000" in game.run.error.message


# --- the end, and no time -------------------------------------------------------------------------------------------


def test_an_output_is_made_by_the_next_decision_where_this_one_has_spent_enough() -> None:
    steps = {f"s{n}": {"when": "${length(sort_by(input, &@)) < `0`}"} for n in range(3)}
    game = Game(a_flow(steps, output="${length(input)}"), input=NUMBERS)
    decisions = to_the_end(game, claim())
    assert [decision.run.status for decision in decisions] == [Status.RUNNING] * 3 + [Status.SUCCEEDED]
    assert game.run.output == 80_000


def test_a_worker_with_no_time_left_hands_over_instead_of_deciding_the_same_again() -> None:
    when = "${length(sort_by(input, &@)) > `0`}"
    flow = a_flow({f"s{n}": {"when": when, "timeout": "60s"} for n in range(5)})
    game = Game(flow, input=NUMBERS, limits=LIMITS)
    game.limits = with_stop_before(game, 10)
    (decision,) = to_the_end(game, claim())
    assert (decision.run.status, decision.run.due_at) == (Status.WAITING, game.now)


def test_what_is_more_at_the_horizon_is_due_for_the_next_worker_at_once() -> None:
    game = Game(a_flow({f"s{n}": {"when": "${length(sort_by(input, &@)) < `0`}"} for n in range(5)}), input=NUMBERS)
    game.limits = with_stop_before(game, 0)
    (decision,) = to_the_end(game, claim())
    assert (decision.run.status, decision.run.due_at) == (Status.WAITING, game.now)
    game.limits = LIMITS
    to_the_end(game, Claimed(owner="d" * 16, worker="other"))
    assert game.run.status is Status.SUCCEEDED


def with_stop_before(game: Game, seconds: float) -> Any:
    return replace(game.limits, stop_before=game.now + timedelta(seconds=seconds))


def test_the_clock_leaves_steps_to_the_next_decision_but_never_the_first() -> None:
    game = wide(3, {"input": {"x": "${input}"}})
    for ticks, count in ((0.0, 3), (0.02, 1)):
        seconds = itertools.count(0.0, ticks)
        clock = partial(next, seconds)
        decision = decide(game.run, game.workflow, [claim()], game.now, limits=game.limits, clock=clock)
        assert (len(started(decision)), decision.more) == (count, count < 3)


# --- in a worker ----------------------------------------------------------------------------------------------------


@virtually
async def test_a_worker_carries_a_run_of_many_costly_steps_to_its_end() -> None:
    steps = {f"s{n}": {"task": "probe.play", "when": "${length(sort_by(input, &@)) > `0`}"} for n in range(8)}
    world = World()
    run = await world.play({"steps": steps, "output": "${steps.s7.status}"}, NUMBERS)
    consistent(run)
    assert (run.status, run.output, run.epoch) == (Status.SUCCEEDED, "succeeded", 1)
    assert len([seen for seen in world.log if seen.what == "start"]) == 8


@virtually
async def test_what_a_dead_worker_left_for_its_next_decision_is_done_by_the_next_worker() -> None:
    steps = {f"s{n}": {"task": "core.echo", "when": "${length(sort_by(input, &@)) < `0`}"} for n in range(6)}
    world = World()
    envelope = await world.submit(await world.register({"steps": steps}), NUMBERS)
    first, second = world.process(), world.process()
    (message,) = await first.receive()
    first.runs.rule("put", lambda run, *_, **__: Fault.DOWN if run.version > 3 else Fault.NONE)
    first.take(message)
    await asyncio.sleep(0.01)
    await first.kill()
    assert (await world.row(envelope)).status is Status.RUNNING
    await asyncio.sleep(80)
    await world.ring(envelope)
    await second.work(RESUME_QUEUE)
    assert (await world.row(envelope)).status is Status.SUCCEEDED


@virtually
async def test_no_more_large_inputs_are_in_memory_than_attempts_can_run_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alive: list[int] = [0, 0]
    made = RunningAttempts._job

    async def job(self: Any, record: Any, attempt: Any, inputs: Any) -> Any:
        alive[0] += 1
        alive[1] = max(alive)
        return await made(self, record, attempt, inputs)

    attempted = RunningAttempts._attempted

    async def one(self: Any, *given: Any) -> Any:
        try:
            return await attempted(self, *given)
        finally:
            alive[0] -= 1

    monkeypatch.setattr(RunningAttempts, "_job", job)
    monkeypatch.setattr(RunningAttempts, "_attempted", one)
    steps = {f"s{n}": {"task": "probe.play", "input": {"ms": 1_000, "x": "it is ${input}"}} for n in range(12)}
    world = World(settings=Settings(chaos=True, concurrency=3))
    run = await world.play({"steps": steps}, "x" * 1_000_000)
    assert run.status is Status.SUCCEEDED
    assert alive[1] == 3


@virtually
async def test_others_have_their_turn_between_costly_inputs_of_a_maps_items(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns, made = [0], []

    async def others() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    def item_input(*given: Any) -> Any:
        made.append(turns[0])
        return maps.item_input(*given)

    monkeypatch.setattr(map_items, "item_input", item_input)
    mapped = {"task": "core.echo", "over": "${input}", "input": "${length(sort_by(item, &@)[::0])}"}
    step = {"map": {**mapped, "max_concurrency": 20}, "on_failure": "continue"}
    world = World()
    envelope = await world.submit(await world.register({"steps": {"a": step}}), [list(range(9_000))] * 20)
    process = world.process()
    (message,) = await process.receive()
    watching = asyncio.create_task(others())
    await process.take(message)
    watching.cancel()
    assert (await world.row(envelope)).status is Status.SUCCEEDED
    assert len(set(made)) == len(made) == 20


def test_the_limits_are_those_of_the_documentation() -> None:
    assert (budget.STEP_NODES, budget.STEP_BYTES, LIMITS.max_read_bytes) == (400_000, 32_000_000, 40_000_000)
