"""A map step's life in the record: it begins, is looked at while it goes on elsewhere, and ends (R9)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fanfold.engine.language.issues import kind_of
from fanfold.engine.language.maps import ItemError, MapState, Via, batch_size, plan_of
from fanfold.engine.language.templates import ExpressionError
from fanfold.engine.language.workflow import OnInterrupt, Step, Workflow
from fanfold.engine.payload import Json, Loaded
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Failure, Run, Status, StepStatus, runnable
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.effects import SendWake, StartMap
from fanfold.engine.rules.engine_limits import MAX_DELAY
from fanfold.engine.rules.events import MapEnded, MapStillRunning, MapThrottled
from fanfold.engine.rules.scope import scope_of

FIRST_LOOK = timedelta(minutes=5)
LAST_LOOK = timedelta(hours=1)
"""A map elsewhere that says nothing is looked at after 5 minutes, then after twice as long each time, up to an hour."""
FIRST_AGAIN = timedelta(seconds=10)
LAST_AGAIN = timedelta(minutes=5)
"""Items that were never begun are asked for again after 10 s, then after twice as long each time, up to 5 minutes:
Lambda adds 1,000 executions to a function every 10 s; what an account has in all somebody has to give back first."""

AFTER_RING = (timedelta(seconds=1), timedelta(seconds=2), timedelta(seconds=5))
"""One that says that it has ended, and still goes on, is looked at after these: its last state rings before its
execution is closed, and what Step Functions tells of executions lags (DescribeExecution is eventually consistent)."""


def begin_map(draft: Draft, step: Step, loaded: Loaded) -> bool:
    """A map's turn has come: pin what it goes over and where, or end it at once. False: it needs time there is not."""
    assert step.map is not None, "only a map begins so"
    try:
        items = draft.evaluate(step.map.over, loaded)
        scope = scope_of(step.input, draft.run, draft.steps, loaded, draft.allowance)
    except ExpressionError as error:
        draft.fail_step(step, Failure(type=error.fault, message=str(error)))
        return True
    if fault := _refusal(items, draft.limits.max_map_items):
        draft.fail_step(step, fault)
        return True
    via = _via(draft, step, len(items))
    if via is Via.INLINE and items and not draft.has_time_for(step):
        return draft.fails_for_time(step)
    size = batch_size(step.map.max_concurrency, len(items), draft.limits.map_batch)
    state = draft.steps[step.name]
    attempt = state.attempts + 1
    draft.step(
        step.name,
        status=StepStatus.RUNNING if via is Via.INLINE else StepStatus.WAITING,
        attempts=attempt,
        started_at=state.started_at or draft.now,
        due_at=None if via is Via.INLINE else draft.now + FIRST_LOOK,
        map=MapState(
            via=via,
            items=len(items),
            batch_size=size,
            batches_at_once=max(1, step.map.max_concurrency // size),
            plan=plan_of(items, scope),
        ),
    )
    draft.note(EventType.STEP_STARTED, step=step.name, attempt=attempt)
    draft.note(EventType.MAP_STARTED, step=step.name, attempt=attempt, data={"items": len(items), "via": via.value})
    if not items:
        _end(draft, step, output=[], failed=0, errors=())
    elif via is Via.STEP_FUNCTIONS:
        draft.effects.append(StartMap(step=step.name))
    return True


def looked_at(draft: Draft, event: MapStillRunning) -> None:
    """The map was found still going on elsewhere: look again later, and soon if it says that it has ended."""
    name, state = event.step, draft.steps[event.step]
    assert state.map is not None, "only a map is looked at so"
    looks = -len(AFTER_RING) if event.rang else state.map.looks
    pause = AFTER_RING[looks] if looks < 0 else min(FIRST_LOOK * 2 ** min(looks + 1, 10), LAST_LOOK)
    _look_in(draft, name, pause, replace(state.map, looks=looks + 1))


def ask_again(draft: Draft, event: MapThrottled) -> None:
    """Some items of the map were never begun: the next look has another execution work on them. No item has failed."""
    state = draft.steps[event.step].map
    assert state is not None, "only a map is asked for so"
    if state.again == event.again:
        pause = min(FIRST_AGAIN * 2 ** min(state.again, 10), LAST_AGAIN)
        _look_in(draft, event.step, pause, replace(state, looks=0, again=state.again + 1))


def _look_in(draft: Draft, name: str, pause: timedelta, state: MapState) -> None:
    draft.step(name, due_at=draft.now + pause, map=state)
    if draft.status is Status.WAITING:
        due = draft.first_timer
        if runnable(draft.run) and draft.run.due_at is not None:
            due = min(due, draft.run.due_at)
        draft.set(due_at=due)
        if due <= draft.now + MAX_DELAY:
            draft.effects.append(SendWake(at=due))


def rang(draft: Draft, name: str) -> None:
    """The map says that it has ended, and another holds the run: it is to look now."""
    draft.by_operator = True
    state = draft.steps[name]
    assert state.map is not None, "only a map rings"
    draft.step(name, due_at=draft.now, map=replace(state.map, looks=min(state.map.looks, -len(AFTER_RING))))


def end_map(draft: Draft, workflow: Workflow, event: MapEnded) -> None:
    """Every item has an end: the map succeeds if its tolerance bears the failures."""
    _end(draft, workflow.steps[event.step], output=event.output, failed=event.failed, errors=event.errors)


def _end(draft: Draft, step: Step, *, output: Json, failed: int, errors: tuple[ItemError, ...]) -> None:
    state = draft.steps[step.name]
    assert state.map is not None, "only a map ends so"
    assert step.map is not None, "only a map ends so"
    ended = replace(state.map, plan=None, failed=failed, errors=errors)
    draft.step(step.name, map=ended)
    draft.note(
        EventType.MAP_FINISHED,
        step=step.name,
        attempt=state.attempts,
        data={"items": ended.items, "failed": failed},
    )
    if step.map.tolerate.bears(failed, ended.items):
        draft.settle(step.name, StepStatus.SUCCEEDED, EventType.STEP_SUCCEEDED, output=output)
    else:
        draft.fail_step(step, _fault(ended, step))


def open_elsewhere(run: Run) -> list[str]:
    """The map steps of a run that go on elsewhere."""
    return [name for name, state in run.steps.items() if state.status is StepStatus.WAITING and state.map is not None]


def _via(draft: Draft, step: Step, items: int) -> Via:
    """Where to: elsewhere only if that is there for the class, and an attempt at an item fits into a batch's time."""
    assert step.map is not None, "asked of maps only"
    longest = draft.limits.fan_out.get(draft.run.class_name)
    possible = longest is not None and step.timeout_seconds <= longest
    if not possible or step.map.via is Via.INLINE or step.retry.on_interrupt is OnInterrupt.FAIL or items == 0:
        return Via.INLINE
    if step.map.via is Via.AUTO and items < draft.limits.inline_map_items:
        return Via.INLINE
    return Via.STEP_FUNCTIONS


def _refusal(items: Json, limit: int) -> Failure | None:
    if not isinstance(items, list):
        return Failure(type="invalid_map", message=f"`over` must give a list, and gave {kind_of(items)}")
    if len(items) > limit:
        message = f"`over` gave {len(items):,} items; the limit is {limit:,} (setting max_map_items)"
        return Failure(type="map_too_large", message=message)
    return None


def _fault(ended: MapState, step: Step) -> Failure:
    assert step.map is not None, "asked of maps only"
    tolerate = step.map.tolerate
    borne = f"{tolerate.percent:g}%" if tolerate.percent else f"{tolerate.count:,}"
    message = f"{ended.failed:,} of {ended.items:,} items failed, tolerated are {borne}"
    if ended.errors:
        first = ended.errors[0]
        message += f"; item {first.index}: {first.type}: {first.message}"
    return Failure(type="items_failed", message=message[:1_000])
