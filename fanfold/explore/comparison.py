"""Compares a try with the undisturbed run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fanfold.engine.language.step import OnFailure
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import BlobRef, Json, Value
from fanfold.engine.record.journal import EventType
from fanfold.engine.record.run import Reason, Run, Status, StepStatus
from fanfold.explore.trace import Effect, Trace

SHOWN = 80
"""Characters of a value that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """One difference: a sentence, and the step that it is about (None: the run as a whole)."""

    step: str | None
    what: str

    def __str__(self) -> str:
        return self.what if self.step is None else f"step {self.step}: {self.what}"


def judge(course: Trace, undisturbed: Trace, workflow: Workflow, *, outputs: bool) -> Sequence[Wrong]:
    """All errors of a try. `outputs`: whether outputs must be equal to those of the undisturbed run."""
    found = [Wrong(step=None, what=what) for what in course.broken]
    run, model = course.run, undisturbed.run
    assert run is not None, "a finished try has its run"
    assert model is not None, "the undisturbed try has its run"
    if course.broken and not run.terminal:
        return found
    found += _journal(run)
    found += [
        Wrong(step=execution.step, what=f"{execution.complaint} (by {execution.process})")
        for execution in course.executions
        if execution.complaint is not None
    ]
    if course.cut_off:
        found += _interrupted(course, run, workflow)
    else:
        found += _different(run, model, workflow, outputs=outputs)
    found += _effects(course, undisturbed, interrupted=bool(course.cut_off))
    return found


def unexpected(run: Run, expected: Status) -> Iterator[Wrong]:
    """Errors of the undisturbed run: its end is not the expected one."""
    if run.status is not expected:
        yield Wrong(step=None, what=f"the run is {end_of(run)}, though nothing disturbs it; expected was {expected}")
        for name, state in run.steps.items():
            if state.status is StepStatus.FAILED and state.error is not None:
                yield Wrong(step=name, what=f"failed: {state.error.type}: {state.error.message[:SHOWN]}")


def _journal(run: Run) -> Iterator[Wrong]:
    """Check that the journal has no gap, is in order of time, and agrees with the state."""
    if [entry.seq for entry in run.journal] != list(range(1, len(run.journal) + 1)):
        yield Wrong(step=None, what="the journal has a gap")
    if any(a.at > b.at for a, b in zip(run.journal, run.journal[1:], strict=False)):
        yield Wrong(step=None, what="the journal is not in the order of time")
    if run.journal[-1].type != f"run.{run.status}":
        yield Wrong(step=None, what=f"the run is {run.status}, and its journal ends with {run.journal[-1].type}")
    for name, state in run.steps.items():
        begun = [entry for entry in run.journal if entry.step == name and entry.type is EventType.STEP_STARTED]
        ends = [entry for entry in run.journal if entry.step == name and entry.type == f"step.{state.status}"]
        if state.map is None and len(begun) != state.attempts:
            yield Wrong(step=name, what=f"has {state.attempts} attempts, and its journal tells of {len(begun)}")
        if state.settled and len(ends) != 1:
            yield Wrong(step=name, what=f"is {state.status}, and its journal tells {len(ends)} times of it")


def _interrupted(course: Trace, run: Run, workflow: Workflow) -> Iterator[Wrong]:
    """Check a step that begins at most once and whose worker died: it has failed, like a run without `continue`."""
    for name, begun in course.cut_off.items():
        state = run.steps.get(name)
        if state is None or state.status is not StepStatus.FAILED or state.error is None:
            yield Wrong(step=name, what="was interrupted under `on_interrupt: fail`, and has not failed")
        elif state.error.type != "interrupted":
            yield Wrong(step=name, what=f"was interrupted, and failed as {state.error.type}")
        if any(execution.step == name for execution in course.executions[begun:]):
            yield Wrong(step=name, what="was executed again although it says `on_interrupt: fail`")
        if workflow.steps[name].on_failure is OnFailure.FAIL and run.reason is not Reason.STEP_FAILED:
            yield Wrong(step=name, what=f"has failed, and the run is {end_of(run)}")


def _different(run: Run, model: Run, workflow: Workflow, *, outputs: bool) -> Iterator[Wrong]:
    if (run.status, run.reason) != (model.status, model.reason):
        more = ""
        if run.reason is Reason.TIMED_OUT:
            more = f": its timeout of {workflow.timeout_seconds:g} s leaves no room for a lease to run out"
        elif run.error is not None:
            more = f": {run.error.message[:SHOWN]}"
        yield Wrong(step=None, what=f"the run is {end_of(run)}, undisturbed it is {end_of(model)}{more}")
    for name in workflow.steps:
        state, wanted = run.steps.get(name), model.steps.get(name)
        if state is None or wanted is None:
            continue
        if state.status is not wanted.status:
            why = "" if state.error is None else f" ({state.error.type}: {state.error.message[:SHOWN]})"
            yield Wrong(step=name, what=f"is {state.status}, undisturbed {wanted.status}{why}")
        elif outputs and content(state.output) != content(wanted.output):
            yield Wrong(step=name, what=f"gave {_shown(state.output)}, undisturbed {_shown(wanted.output)}")
    if outputs and content(run.output) != content(model.output) and run.status is model.status:
        yield Wrong(step=None, what=f"the output is {_shown(run.output)}, undisturbed {_shown(model.output)}")


def content(value: Value) -> Json:
    """The comparable part of a value; the S3 key of a large value depends on the attempt."""
    if isinstance(value, BlobRef):
        return {"bytes": value.bytes, "sha256": value.sha256}
    return value


def _effects(course: Trace, undisturbed: Trace, *, interrupted: bool) -> Iterator[Wrong]:
    """The effects of a try; a repetition with the same key does not count."""
    seen, wanted = _by_place(course.effects), _by_place(undisturbed.effects)
    for place in dict.fromkeys([*wanted, *seen]):
        name, step, index = place
        item = "" if index is None else f" for item {index}"
        now, then = seen.get(place, ()), wanted.get(place, ())
        bare, bare_then = now.count(None), then.count(None)
        keys, keys_then = len(set(now) - {None}), len(set(then) - {None})
        if bare > bare_then:
            what = f"effect {name!r}{item} happened {_times(bare)} without an idempotency key"
            yield Wrong(step=step, what=f"{what}, undisturbed {_times(bare_then)}")
        if keys > keys_then:
            what = f"effect {name!r}{item} happened under {keys} different keys, undisturbed under {keys_then}"
            yield Wrong(step=step, what=what)
        if not interrupted and (bare < bare_then or keys < keys_then):
            yield Wrong(step=step, what=f"effect {name!r}{item} is missing, though the run has ended")


def _by_place(effects: Sequence[Effect]) -> Mapping[tuple[str, str, int | None], list[str | None]]:
    places: dict[tuple[str, str, int | None], list[str | None]] = {}
    for effect in effects:
        places.setdefault((effect.name, effect.step, effect.index), []).append(effect.key)
    return places


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def end_of(run: Run) -> str:
    """The end of a run: its status, and its reason if it has one."""
    return str(run.status) if run.reason is None else f"{run.status} ({run.reason})"


def _shown(value: Value) -> str:
    text = json.dumps(content(value), ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
