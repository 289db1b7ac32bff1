"""What an expression can see of a run: `{input, steps.<name>.{status, output, error}, run.{…}}`."""

from __future__ import annotations

from datetime import UTC

from functions.engine.expressions import Template
from functions.engine.run import Run, StepState, fault_view
from functions.engine.values import BlobRef, Json, Loaded, Value, ValuesMissing, resolve

_UNBEGUN = StepState()


def evaluate(template: Template, run: Run, steps: dict[str, StepState], loaded: Loaded) -> Json:
    """The template's value for the run with these steps.

    Only what the template names is put in front of it. Raises `ValuesMissing` for payloads that
    are not loaded, `ExpressionError` when an expression fails.
    """
    needed: list[Value] = []
    if "input" in template.roots:
        needed.append(run.input)
    needed += [steps[name].output for name in template.outputs if name in steps]
    missing = [v for v in needed if isinstance(v, BlobRef) and v.key not in loaded]
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
        scope["steps"] = {name: _step(name, steps, template, loaded) for name in template.steps}
    return template.evaluate(scope)


def _step(name: str, steps: dict[str, StepState], template: Template, loaded: Loaded) -> Json:
    state = steps.get(name, _UNBEGUN)
    return {
        "status": str(state.status),
        "output": resolve(state.output, loaded) if name in template.outputs else None,
        "error": fault_view(state.error),
    }
