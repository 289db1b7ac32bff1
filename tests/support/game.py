"""A run moved by hand: events go into `decide` one after the other, and every record is checked on the way."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from fanfold.adapters.aws.run_items import from_item, to_item
from fanfold.engine.language.document_check import check
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Json, Loaded
from fanfold.engine.record.messages import first_version
from fanfold.engine.record.run import Failure, Run, Status, StepStatus
from fanfold.engine.record.steps import Steps
from fanfold.engine.rules.decide import Decision, decide
from fanfold.engine.rules.effects import Effect, ReleaseSlot, SendWake, StartAttempt
from fanfold.engine.rules.engine_limits import EngineLimits
from fanfold.engine.rules.events import (
    AttemptFailed,
    AttemptSucceeded,
    CancelAsked,
    Claimed,
    Emitted,
    Event,
    Keyed,
    PauseAsked,
    QueueDeadlineChecked,
    RecordReloaded,
    RedriveAsked,
    Renewed,
    ResumeAsked,
    Signalled,
)
from fanfold.tasks import registry
from tests.support.builders import an_envelope
from tests.support.clock import START
from tests.support.world import consistent

LIMITS = EngineLimits(
    lease=timedelta(seconds=60),
    skew=timedelta(seconds=5),
    suspend_after=timedelta(seconds=5),
    max_crashes=5,
    retention=timedelta(days=30),
)


def a_flow(steps: dict[str, Any], **given: Any) -> Workflow:
    """A workflow of these steps; each is a document's, a task's `task` and `timeout` may be left out."""
    task = {"task": "probe.play", "timeout": "60s"}
    full = {name: step if {"wait", "map", "fail"} & step.keys() else {**task, **step} for name, step in steps.items()}
    document = {"name": "flow", "steps": full, **given}
    return check(document, name=None, tasks=registry.names(chaos=True), classes={"model": 840})


class Game:
    """One run of a workflow and the hand that moves it. `now` moves by `after`."""

    def __init__(
        self, workflow: Workflow, *, limits: EngineLimits = LIMITS, loaded: Loaded | None = None, **given: Any
    ) -> None:
        self.workflow = workflow
        self.limits = limits
        self.loaded = loaded
        self.goes_on = True
        self.now = START
        self.effects: tuple[Effect, ...] = ()
        self._claims = 0
        queue_timeout = workflow.queue_timeout_seconds
        values: dict[str, Any] = {
            "workflow": workflow.name,
            "workflow_version": workflow.version,
            "deadline": START + timedelta(seconds=workflow.timeout_seconds),
            "queue_deadline": None if queue_timeout is None else START + timedelta(seconds=queue_timeout),
        }
        self.run = first_version(an_envelope(**values | given))

    def after(self, seconds: float) -> Game:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)
        return self

    def feed(self, *events: Event) -> Decision:
        """Decide these events together, check what must hold of every decision, and commit."""
        before = copy.deepcopy(self.run)
        decision = self._decide(events)
        assert self.run == before, "decide changed what it was given"
        assert decision == self._decide(events), "decide is not pure"
        assert decision.changed == (decision.run is not self.run)
        check_step(self.run, decision)
        run = decision.run
        if decision.changed:
            run = replace(run, version=run.version + 1, write_id=f"w{run.version:015d}")
        self.effects = decision.effects
        self.run = run
        return decision

    def _decide(self, events: Sequence[Event]) -> Decision:
        return decide(
            self.run, self.workflow, events, self.now, limits=self.limits, loaded=self.loaded, goes_on=self.goes_on
        )

    def claim(self) -> Game:
        """A new worker takes the run."""
        self._claims += 1
        self.feed(Claimed(owner=f"c{self._claims:015d}", worker=f"w{self._claims}"))
        return self

    def succeed(self, *steps: str, out: Json = "out") -> Game:
        """The current attempts of these steps succeed, together."""
        self.feed(*(AttemptSucceeded(step=s, attempt=self.run.steps[s].attempts, output=out) for s in steps))
        return self

    def fail(self, step: str, *, retryable: bool = True, chance: float = 0.5, after: float | None = None) -> Game:
        """The step's current attempt fails."""
        self.feed(
            AttemptFailed(
                step=step,
                attempt=self.run.steps[step].attempts,
                failure=Failure(type="Broken", message="it broke"),
                retryable=retryable,
                chance=chance,
                after_seconds=after,
            )
        )
        return self

    def emit(self, step: str, data: Json) -> Game:
        """The step's current attempt reports progress."""
        self.feed(Emitted(step=step, attempt=self.run.steps[step].attempts, data=data))
        return self

    def look(self) -> Game:
        """A timer: decide without news."""
        self.feed()
        return self

    def renew(self) -> Game:
        """The holder renews its lease."""
        self.feed(Renewed())
        return self

    def sweep(self) -> Game:
        """The sweeper asks."""
        self.feed(QueueDeadlineChecked())
        return self

    def notice(self) -> Game:
        """The holder goes by a record that an operator has written."""
        self.feed(RecordReloaded())
        return self

    def signal(self, name: str, payload: Json = None, *, by: str = "Ada", keyed: Keyed | None = None) -> Game:
        """A signal arrives."""
        self.feed(Signalled(by=by, name=name, payload=payload, keyed=keyed))
        return self

    def cancel(self) -> Game:
        """An operator cancels."""
        self.feed(CancelAsked(by="Ada"))
        return self

    def pause(self) -> Game:
        """An operator pauses."""
        self.feed(PauseAsked(by="Ada"))
        return self

    def resume(self) -> Game:
        """An operator resumes."""
        self.feed(ResumeAsked(by="Ada"))
        return self

    def redrive(self, *, keyed: Keyed | None = None) -> Game:
        """An operator redrives."""
        self.feed(RedriveAsked(by="Ada", keyed=keyed))
        return self

    def crash(self) -> Game:
        """The holder dies, its lease runs out, another worker claims."""
        return self.after(66).claim()

    @property
    def statuses(self) -> dict[str, str]:
        """The steps' statuses."""
        steps = Steps(self.run, self.workflow)
        return {name: str(steps[name].status) for name in self.workflow.steps}

    @property
    def started(self) -> list[tuple[str, int]]:
        """The attempts the last decision starts."""
        return [(e.step, e.attempt) for e in self.effects if isinstance(e, StartAttempt)]

    @property
    def inputs(self) -> dict[str, Json]:
        """The inputs of the attempts the last decision starts."""
        return {e.step: e.input for e in self.effects if isinstance(e, StartAttempt)}

    @property
    def rings(self) -> list[datetime]:
        """When the last decision rings."""
        return [e.at for e in self.effects if isinstance(e, SendWake)]

    @property
    def slots(self) -> int:
        """How many places the last decision returns."""
        return sum(isinstance(e, ReleaseSlot) for e in self.effects)


def check_step(old: Run, decision: Decision) -> None:
    """What must hold between a record and the next."""
    new = decision.run
    consistent(new)
    assert new.journal[: len(old.journal)] == old.journal, "the journal was rewritten"
    redriven = new.try_number > old.try_number
    if old.terminal and not redriven:
        assert not decision.changed, "terminal is final"
    for name, state in old.steps.items():
        if state.settled and not redriven:
            assert new.steps[name] == state, f"settled step {name} changed"
    running = {(n, s.attempts) for n, s in new.steps.items() if s.status is StepStatus.RUNNING and s.map is None}
    before = {(n, s.attempts) for n, s in old.steps.items() if s.status is StepStatus.RUNNING}
    starts = [(e.step, e.attempt) for e in decision.effects if isinstance(e, StartAttempt)]
    # A map that stays with its worker is begun by the record alone.
    assert sorted(starts) == sorted(running - before), "what starts is not what the record says"
    returned = [e for e in decision.effects if isinstance(e, ReleaseSlot)]
    leaves = old.in_queue and not new.in_queue
    assert len(returned) == int(leaves), "a place is returned by the one move out of the queue"
    if new.status is Status.RUNNING and decision.changed:
        assert new.lease_until is not None
    if new.status is Status.WAITING:
        assert new.due_at is not None
        assert new.due_at <= new.deadline
        assert not any(s.status is StepStatus.RUNNING for s in new.steps.values())
    else:
        assert new.due_at is None
    assert from_item(to_item(new)) == new, "the record does not survive storage"


def steps_of(run: Run) -> dict[str, str]:
    """A run's steps by status."""
    return {name: str(state.status) for name, state in run.steps.items()}
