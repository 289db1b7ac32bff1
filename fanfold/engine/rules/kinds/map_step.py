"""A map step's life in the record: it begins, is looked at while it goes on elsewhere, and ends (R9)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from fanfold.engine.language.calling import OnInterrupt
from fanfold.engine.language.issues import kind_of
from fanfold.engine.language.map_step import MapStep
from fanfold.engine.language.maps import ItemError, MapState, Via, batch_size, plan_of
from fanfold.engine.language.templates import ExpressionError
from fanfold.engine.payload import Json, Loaded, Value
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Failure, Run, Status, StepState, StepStatus
from fanfold.engine.record.timers import runnable
from fanfold.engine.rules.draft import Draft
from fanfold.engine.rules.effects import SendWake, StartMap, StopMap
from fanfold.engine.rules.engine_limits import MAX_DELAY
from fanfold.engine.rules.events import (
    AttemptFailed,
    AttemptNotBegun,
    AttemptSucceeded,
    Emitted,
    MapCompletionSignalled,
    MapEnded,
    MapStillRunning,
    MapThrottled,
    MapYielded,
    StepEvent,
)
from fanfold.engine.rules.kinds.calling import CallingRules
from fanfold.engine.rules.scope import scope_of

FIRST_POLL = timedelta(minutes=5)
LAST_POLL = timedelta(hours=1)
"""A distributed map without a wake is polled after 5 minutes, then after twice as long, up to an hour."""
FIRST_AGAIN = timedelta(seconds=10)
LAST_AGAIN = timedelta(minutes=5)
"""Items that were never begun are asked for again after 10 s, then after twice as long each time, up to 5 minutes:
Lambda adds 1,000 executions to a function every 10 s; what an account has in all somebody has to give back first."""

AFTER_SIGNAL = (timedelta(seconds=1), timedelta(seconds=2), timedelta(seconds=5))
"""One that says that it has ended, and still goes on, is looked at after these: its last state rings before its
execution is closed, and what Step Functions tells of executions lags (DescribeExecution is eventually consistent)."""


def open_distributed_maps(run: Run) -> list[str]:
    """The open distributed maps of a run."""
    return [name for name, state in run.steps.items() if _elsewhere(state)]


def _elsewhere(state: StepState) -> bool:
    return state.status is StepStatus.WAITING and state.map is not None


@dataclass(slots=True)
class MapRules(CallingRules):
    """The rules of a step that calls a task for each item of a list."""

    step: MapStep

    # --- beginning ------------------------------------------------------------------------------

    def start(self, draft: Draft, loaded: Loaded) -> bool:
        """Begin the map, or go on in another worker with one that has its items pinned."""
        state = draft.steps[self.step.name]
        if state.status is StepStatus.PENDING or state.map is None:
            return self._begin(draft, loaded)
        if not self.has_time(draft):
            return self.fails_for_time(draft)
        self.start_attempt(draft, None)
        return True

    def _begin(self, draft: Draft, loaded: Loaded) -> bool:
        """Pin what the map goes over and where, or end it at once. False: it needs time there is not."""
        step = self.step
        try:
            items = draft.evaluate(step.over, loaded)
            scope = scope_of(step.input, draft.run, draft.steps, loaded, draft.allowance)
        except ExpressionError as error:
            draft.fail_step(step, Failure(type=error.failure_type, message=str(error)))
            return True
        if failure := _refusal(items, draft.limits.max_map_items):
            draft.fail_step(step, failure)
            return True
        via = self._via(draft, len(items))
        if via is Via.INLINE and items and not self.has_time(draft):
            return self.fails_for_time(draft)
        size = batch_size(step.max_concurrency, len(items), draft.limits.map_batch)
        state = draft.steps[step.name]
        attempt = state.attempts + 1
        draft.step(
            step.name,
            status=StepStatus.RUNNING if via is Via.INLINE else StepStatus.WAITING,
            attempts=attempt,
            started_at=state.started_at or draft.now,
            due_at=None if via is Via.INLINE else draft.now + FIRST_POLL,
            map=MapState(
                via=via,
                items=len(items),
                batch_size=size,
                batches_at_once=max(1, step.max_concurrency // size),
                plan=plan_of(items, scope),
            ),
        )
        draft.note(EventType.STEP_STARTED, step=step.name, attempt=attempt)
        draft.note(EventType.MAP_STARTED, step=step.name, attempt=attempt, data={"items": len(items), "via": via.value})
        if not items:
            self._end(draft, output=[], failed=0, errors=())
        elif via is Via.STEP_FUNCTIONS:
            draft.effects.append(StartMap(step=step.name))
        return True

    def _via(self, draft: Draft, items: int) -> Via:
        """Where to: elsewhere only if the class has that, and an attempt at an item fits into the time of a batch."""
        step = self.step
        longest = draft.limits.fan_out.get(draft.run.class_name)
        possible = longest is not None and step.timeout_seconds <= longest
        if not possible or step.via is Via.INLINE or step.retry.on_interrupt is OnInterrupt.FAIL or items == 0:
            return Via.INLINE
        if step.via is Via.AUTO and items < draft.limits.inline_map_items:
            return Via.INLINE
        return Via.STEP_FUNCTIONS

    # --- what happens ---------------------------------------------------------------------------

    def on_event(self, draft: Draft, event: StepEvent) -> None:
        """An attempt at the map in its worker ended, or something is known of one that goes on elsewhere."""
        match event:
            case AttemptSucceeded() | AttemptFailed() | AttemptNotBegun() | Emitted():
                self.on_attempt(draft, event)
            case MapEnded():
                if self.awaits(draft, event.attempt):
                    self._end(draft, output=event.output, failed=event.failed, errors=event.errors)
            case MapYielded():
                if self.awaits(draft, event.attempt):
                    draft.step(self.step.name, status=StepStatus.RETRYING, due_at=draft.now)
            case MapStillRunning():
                if state := self._open_elsewhere(draft, event.attempt):
                    self._looked_at(draft, state, signalled=event.signalled)
            case MapThrottled():
                if state := self._open_elsewhere(draft, event.attempt):
                    self._ask_again(draft, state, event.again)
            case MapCompletionSignalled():
                if state := self._open_elsewhere(draft, None):
                    self._rang(draft, state)
            case _:
                assert_never(event)

    def _open_elsewhere(self, draft: Draft, attempt: int | None) -> MapState | None:
        """The map, where the record waits for it and it goes on elsewhere, in that attempt."""
        state = draft.steps[self.step.name]
        return state.map if _elsewhere(state) and attempt in (None, state.attempts) else None

    def _looked_at(self, draft: Draft, state: MapState, *, signalled: bool) -> None:
        """The map was found still going on elsewhere: look again later, and soon if it says that it has ended."""
        polls = -len(AFTER_SIGNAL) if signalled else state.polls
        pause = AFTER_SIGNAL[polls] if polls < 0 else min(FIRST_POLL * 2 ** min(polls + 1, 10), LAST_POLL)
        self._poll_in(draft, pause, replace(state, polls=polls + 1))

    def _ask_again(self, draft: Draft, state: MapState, again: int) -> None:
        """Some items were never begun: the next look has another execution work on them. No item has failed."""
        if state.again == again:
            pause = min(FIRST_AGAIN * 2 ** min(state.again, 10), LAST_AGAIN)
            self._poll_in(draft, pause, replace(state, polls=0, again=state.again + 1))

    def _poll_in(self, draft: Draft, pause: timedelta, state: MapState) -> None:
        draft.step(self.step.name, due_at=draft.now + pause, map=state)
        if draft.status is Status.WAITING:
            due = draft.first_timer
            if runnable(draft.run) and draft.run.due_at is not None:
                due = min(due, draft.run.due_at)
            draft.due_at = due
            if due <= draft.now + MAX_DELAY:
                draft.effects.append(SendWake(at=due))

    def _rang(self, draft: Draft, state: MapState) -> None:
        """The map says that it has ended, and another holds the run: it is to look now."""
        draft.by_operator = True
        polls = min(state.polls, -len(AFTER_SIGNAL))
        draft.step(self.step.name, due_at=draft.now, map=replace(state, polls=polls))

    def due_after_pause(self, state: StepState, due_at: datetime, *, now: datetime, paused: timedelta) -> datetime:
        """A distributed map went on meanwhile, and its wake was not read: poll at once."""
        return due_at + paused if state.map is None else now

    @property
    def opened_by_others(self) -> bool:
        """A distributed map sends a wake when it has ended."""
        return True

    # --- ending ---------------------------------------------------------------------------------

    def _end(self, draft: Draft, *, output: Value, failed: int, errors: tuple[ItemError, ...]) -> None:
        """Every item has an end: the map succeeds if its tolerance bears the failures."""
        step, state = self.step, draft.steps[self.step.name]
        assert state.map is not None, "only a map that has begun ends"
        ended = replace(state.map, plan=None, failed=failed, errors=errors)
        draft.step(step.name, map=ended)
        data = {"items": ended.items, "failed": failed}
        draft.note(EventType.MAP_FINISHED, step=step.name, attempt=state.attempts, data=data)
        if step.tolerate.bears(failed, ended.items):
            draft.settle(step.name, StepStatus.SUCCEEDED, EventType.STEP_SUCCEEDED, output=output)
        else:
            draft.fail_step(step, self._fault(ended))

    def _fault(self, ended: MapState) -> Failure:
        tolerate = self.step.tolerate
        borne = f"{tolerate.percent:g}%" if tolerate.percent else f"{tolerate.count:,}"
        message = f"{ended.failed:,} of {ended.items:,} items failed, tolerated are {borne}"
        if ended.errors:
            first = ended.errors[0]
            message += f"; item {first.index}: {first.type}: {first.message}"
        return Failure(type="items_failed", message=message[:1_000])

    def cancel(self, draft: Draft) -> None:
        """A distributed map is stopped there, unless this very decision would have started it."""
        name = self.step.name
        state = draft.steps[name]
        CallingRules.cancel(self, draft)
        if _elsewhere(state) and StartMap(step=name) not in draft.effects:
            draft.effects.append(StopMap(step=name))
        elif state.map is not None:
            draft.step(name, map=replace(state.map, plan=None))


def _refusal(items: Json, limit: int) -> Failure | None:
    if not isinstance(items, list):
        return Failure(type="invalid_map", message=f"`over` must give a list, and gave {kind_of(items)}")
    if len(items) > limit:
        message = f"`over` gave {len(items):,} items; the limit is {limit:,} (setting max_map_items)"
        return Failure(type="map_too_large", message=message)
    return None
