"""What an expression can see of a run: `{input, steps.<name>.{status, output, error}, run.{…}}`."""

from __future__ import annotations

from datetime import UTC

from fanfold.engine.errors import PayloadLost
from fanfold.engine.language.budget import Allowance, Refused
from fanfold.engine.language.expressions import InputUnavailable
from fanfold.engine.language.templates import ExpressionError, Template
from fanfold.engine.payload import BlobRef, Json, Loaded, Value, ValuesMissing, resolve
from fanfold.engine.record.run import Run, StepState, failure_view
from fanfold.engine.record.steps import Steps

MAX_HEAD_BYTES = 400_000
"""The most a record holds itself: DynamoDB's limit of an item."""


def evaluate(
    template: Template,
    run: Run,
    steps: Steps,
    loaded: Loaded,
    allowance: Allowance | None = None,
    *,
    max_bytes: int | None = None,
    counted: bool = True,
) -> Json:
    """The template's value for the run with these steps, out of the budget of the step that is its turn.

    Only what the template names is put in front of it. Raises `ValuesMissing` for payloads that are not loaded,
    `ExpressionError` when an expression fails or gives over `max_bytes`, `PutOff` when the decision has read enough.
    Without `counted` the bytes are counted only where they may come to so many: that takes the time of writing them.
    """
    # One without expressions sees nothing.
    scope = scope_of(template, run, steps, loaded, allowance) if template.expressions else {}
    if allowance is None or max_bytes is None:
        return template.evaluate(scope, None if allowance is None else allowance.step)
    # Each expression may pick all that was read, and all that the record holds.
    can_be = template.expressions * (allowance.payloads + MAX_HEAD_BYTES)
    if not counted and can_be <= max_bytes:
        return template.evaluate(scope, allowance.step)
    sizes = {id(loaded[key]): size for key, size in allowance.reading.items() if key in loaded}
    return template.evaluate(scope, allowance.step, max_bytes=max_bytes, sizes=sizes)


def scope_of(
    template: Template, run: Run, steps: Steps, loaded: Loaded, allowance: Allowance | None = None
) -> dict[str, Json]:
    """What the template can see of the run, and no more than it names. Raises as `evaluate` does."""
    try:
        return _scope_of(template, run, steps, loaded, allowance)
    except PayloadLost as error:
        raise InputUnavailable(str(error)) from error


def _scope_of(
    template: Template, run: Run, steps: Steps, loaded: Loaded, allowance: Allowance | None
) -> dict[str, Json]:
    needed: list[Value] = []
    if "input" in template.roots:
        needed.append(run.input)
    states = {name: steps.checkpoint(name, loaded) for name in template.steps}
    needed += [states[name].output for name in template.outputs]
    payloads = {value.key: value for value in needed if isinstance(value, BlobRef)}
    try:
        (allowance or Allowance()).read(payloads.values())
    except Refused as error:
        raise ExpressionError(str(error)) from error
    missing = [ref for ref in payloads.values() if ref.key not in loaded]
    if missing:
        raise ValuesMissing(missing)
    scope: dict[str, Json] = {}
    if "input" in template.roots:
        scope["input"] = resolve(run.input, loaded)
    if "run" in template.roots:
        scope["run"] = {
            "id": run.id,
            "tenant": run.tenant,
            "created_at": run.created_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
    if "steps" in template.roots:
        scope["steps"] = {name: _step(state, name in template.outputs, loaded) for name, state in states.items()}
    return scope


def _step(state: StepState, with_output: bool, loaded: Loaded) -> Json:
    return {
        "status": str(state.status),
        "output": resolve(state.output, loaded) if with_output else None,
        "error": failure_view(state.error),
    }
