"""`decide` under any workflow and any order of events: what must hold of every decision (see `check_step`)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanfold.engine.payload import BlobRef
from fanfold.engine.record.run import Failure, Status, StepStatus
from fanfold.engine.rules.events import (
    AttemptFailed,
    AttemptSucceeded,
    Emitted,
    Event,
    QueueDeadlineChecked,
    RecordTooLarge,
    Renewed,
)
from fanfold.engine.rules.lease import abandoned
from tests.support.game import LIMITS, Game, a_flow

FAULT = Failure(type="Broken", message="it broke")
REF = BlobRef(key="big", bytes=9_000, sha256="0" * 64)


@st.composite
def flows(draw: st.DrawFn) -> Any:
    """A small workflow without cycles, with some of everything in it."""
    count = draw(st.integers(1, 5))
    steps: dict[str, Any] = {}
    for n in range(count):
        needs = sorted(draw(st.sets(st.sampled_from([f"s{i}" for i in range(n)]), max_size=3))) if n else []
        step: dict[str, Any] = {"needs": needs, "timeout": draw(st.sampled_from(["1s", "60s", "100s"]))}
        step["join"] = draw(st.sampled_from(["succeeded", "settled", "any"]))
        step["on_failure"] = draw(st.sampled_from(["fail", "continue", "continue"]))
        if draw(st.booleans()):
            step["retry"] = {
                "max_attempts": draw(st.integers(1, 3)),
                "backoff": draw(st.sampled_from(["1ms", "2s", "30s", "20m"])),
                "max_backoff": "20m",
                "on_interrupt": draw(st.sampled_from(["retry", "retry", "fail"])),
            }
        if needs:
            seen = draw(st.sampled_from(needs))
            step["input"] = draw(
                st.sampled_from(
                    [
                        f"${{steps.{seen}.output}}",
                        f"is ${{steps.{seen}.status}}",
                        f"${{abs(steps.{seen}.output)}}",
                    ]
                )
            )
            if draw(st.integers(0, 3)) == 0:
                step["when"] = draw(st.sampled_from([f"${{steps.{seen}.output}}", f"${{abs(steps.{seen}.output)}}"]))
        steps[f"s{n}"] = step
    given: dict[str, Any] = {"timeout": draw(st.sampled_from(["2m", "1h"]))}
    if draw(st.booleans()):
        given["queue_timeout"] = "30s"
    if draw(st.booleans()):
        given["output"] = f"${{steps.s{count - 1}.output}}"
    return a_flow(steps, **given)


@st.composite
def events_for(draw: st.DrawFn, game: Game) -> list[Event]:
    """Events of now, of before, of nothing that ever was."""
    events: list[Event] = []
    for _ in range(draw(st.integers(0, 4))):
        step = draw(st.sampled_from([*game.workflow.steps, "nobody"]))
        state = game.run.steps.get(step)
        attempt = max(0, (state.attempts if state else 0) + draw(st.sampled_from([0, 0, 0, 0, -1, 1])))
        match draw(st.integers(0, 7)):
            case 0 | 1 | 2:
                output = draw(st.sampled_from([None, 0, 7, "text", [1], {"a": {"b": 0.5}}, REF]))
                events.append(AttemptSucceeded(step=step, attempt=attempt, output=output))
            case 3 | 4:
                after = draw(st.sampled_from([None, None, 0.0, 1.23456, 100.0, 1e9, 1e300]))
                events.append(
                    AttemptFailed(
                        step=step,
                        attempt=attempt,
                        failure=FAULT,
                        retryable=draw(st.booleans()),
                        chance=draw(st.sampled_from([0.0, 0.3333333, 0.999])),
                        after_seconds=after,
                    )
                )
            case 5:
                events.append(Emitted(step=step, attempt=attempt, data={"n": len(events)}))
            case 6:
                rare = draw(st.integers(0, 9)) == 0
                events.append(RecordTooLarge(detail="too big") if rare else Renewed())
            case _:
                events.append(QueueDeadlineChecked())
    if events and draw(st.booleans()):
        events += draw(st.permutations(events))
    return events


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(flow=flows(), data=st.data())
def test_whatever_happens_in_whatever_order_every_decision_is_right(flow: Any, data: st.DataObject) -> None:
    game = Game(flow, limits=LIMITS, loaded={"big": {"text": "x"}})
    for _ in range(data.draw(st.integers(1, 14))):
        game.after(data.draw(st.sampled_from([0, 0, 0.001, 1, 3, 31, 70, 1300, -2])))
        if game.run.status in (Status.QUEUED, Status.WAITING) or abandoned(game.run, game.now, LIMITS):
            if data.draw(st.integers(0, 3)):
                stop_before = data.draw(st.sampled_from([None, None, 0, 30, 100]))
                at = None if stop_before is None else game.now + timedelta(seconds=stop_before)
                game.limits = replace(LIMITS, stop_before=at)
                game.claim()
        else:
            game.feed(*data.draw(events_for(game)))
        before = game.run
        if game.run.status is Status.RUNNING:
            game.look()
            if game.run is not before:
                # Only time or a horizon may have moved it, and time stands still.
                assert game.run.version == before.version + 1


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(flow=flows(), data=st.data())
def test_a_decision_leaves_nothing_that_could_be_decided_without_news(flow: Any, data: st.DataObject) -> None:
    game = Game(flow, loaded={"big": "x"}).claim()
    for _ in range(12):
        if game.run.terminal:
            break
        if game.run.status is Status.WAITING:
            assert game.run.due_at is not None
            game.now = max(game.now, game.run.due_at)
            game.claim()
            continue
        before = game.run
        assert game.look().run is before, "a second look found what the first one left"
        live = [n for n, s in game.run.steps.items() if s.status is StepStatus.RUNNING]
        retrying = [s.due_at for s in game.run.steps.values() if s.due_at is not None]
        assert live or retrying, "a held run waits for nothing"
        if live:
            game.feed(*data.draw(events_for(game)))
            step = data.draw(st.sampled_from(live))
            if game.run.steps[step].status is StepStatus.RUNNING:
                game.succeed(step) if data.draw(st.booleans()) else game.fail(step)
        else:
            game.now = max(game.now, min(t for t in retrying if t is not None))
            game.look()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(flow=flows(), data=st.data())
def test_every_run_ends_when_its_attempts_do(flow: Any, data: st.DataObject) -> None:
    game = Game(flow, loaded={"big": "x"}).claim()
    for _ in range(100):
        if game.run.terminal:
            return
        if game.run.status is Status.WAITING:
            assert game.run.due_at is not None
            game.now = max(game.now, game.run.due_at)
            game.claim()
            continue
        live = [n for n, s in game.run.steps.items() if s.status is StepStatus.RUNNING]
        if live:
            step = data.draw(st.sampled_from(live))
            if data.draw(st.booleans()):
                game.succeed(step, out=data.draw(st.sampled_from([1, "x", REF])))
            else:
                game.fail(step)
        else:
            game.now = max(game.now, min(s.due_at for s in game.run.steps.values() if s.due_at is not None))
            game.look()
    raise AssertionError("the run does not end")
