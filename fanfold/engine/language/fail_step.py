"""A step that ends its run as failed: `fail: {message: …, type: …}`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fanfold.engine.language.issues import kind_of
from fanfold.engine.language.step import AnyStep, StepKind, fields_of, template_of
from fanfold.engine.language.templates import Slot, Template
from fanfold.engine.payload import Json

if TYPE_CHECKING:
    from fanfold.engine.language.step_checks import StepChecks

FAIL_KEYS = ("message", "type")
ERROR_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
DEFAULT_TYPE = "failed"
"""The `type` of the run's error where the step gives none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailStep(AnyStep):
    """A step that calls nothing: at its turn its run has failed, with this error."""

    message: Template
    type: str = DEFAULT_TYPE

    @property
    def own_templates(self) -> tuple[Template, ...]:
        """The message."""
        return (self.message,)


def _check(step: Mapping[str, Json], pointer: str, checks: StepChecks) -> Sequence[Slot]:
    """Check what a step fails with; its expressions come back."""
    checks.no_call(step, pointer, "a fail", {})
    if "on_failure" in step:
        checks.add(f"{pointer}/on_failure", "a fail ends its run and has no `on_failure`")
    fail, pointer = step["fail"], f"{pointer}/fail"
    if not isinstance(fail, dict):
        checks.add(pointer, f"must be an object, not {kind_of(fail)}")
        return ()
    checks.found.keys(fail, FAIL_KEYS, pointer)
    if "type" in fail and not (isinstance(fail["type"], str) and ERROR_TYPE.fullmatch(fail["type"])):
        checks.add(f"{pointer}/type", "an error's type is a letter, then up to 62 of letters, digits, _, . and -")
    if "message" not in fail:
        checks.add(pointer, "`message` is missing: what the run's error says")
        return ()
    if not isinstance(fail["message"], str):
        checks.add(f"{pointer}/message", f"must be a text, not {kind_of(fail['message'])}")
        return ()
    return checks.expressions(fail["message"], f"{pointer}/message").slots


def _parse(name: str, source: Mapping[str, Json], max_step_seconds: float) -> FailStep:
    fail = source["fail"]
    message = template_of(fail["message"])
    return FailStep(**fields_of(name, source), message=message, type=fail.get("type", DEFAULT_TYPE))


FAIL = StepKind(key="fail", check=_check, parse=_parse)
