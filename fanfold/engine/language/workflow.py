"""A workflow: the steps a run takes, as checked values. Documents come in as parsed JSON.

`load` makes it of a document that was checked when it was registered (`document_check`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from fanfold.engine.language import graph
from fanfold.engine.language.calling import CallingStep
from fanfold.engine.language.duration import parse_duration
from fanfold.engine.language.step import template_of
from fanfold.engine.language.step_kinds import Step, step_of
from fanfold.engine.language.templates import Template
from fanfold.engine.payload import Json, dump

DEFAULT_CLASS = "model"
"""The class of workers of a document that names none."""
DEFAULT_TIMEOUT_SECONDS = 86_400.0
"""How long a run may take, from acceptance, when its document does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A version of a workflow; `steps` is in document order and its `needs` have no cycle.

    `longest_step_seconds` is the longest timeout of any step, `tasks` are the names its steps call.
    """

    name: str
    version: str
    class_name: str = DEFAULT_CLASS
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    queue_timeout_seconds: float | None = None
    steps: Mapping[str, Step]
    output: Template | None = None
    tasks: frozenset[str] = field(init=False, repr=False, compare=False)
    longest_step_seconds: float = field(init=False, repr=False, compare=False)
    _dependents: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _readers: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _positions: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        needs = {name: step.needs for name, step in self.steps.items()}
        reads = {name: tuple(sorted(step.reads)) for name, step in self.steps.items()}
        object.__setattr__(self, "_readers", graph.dependents(reads))
        object.__setattr__(self, "_positions", {name: position for position, name in enumerate(self.steps)})
        object.__setattr__(self, "_dependents", graph.dependents(needs))
        calling = [step for step in self.steps.values() if isinstance(step, CallingStep)]
        object.__setattr__(self, "tasks", frozenset(step.task for step in calling))
        longest = max((step.timeout_seconds for step in calling), default=0.0)
        object.__setattr__(self, "longest_step_seconds", longest)

    def dependents(self, name: str) -> tuple[str, ...]:
        """The steps that need this one directly, in document order; KeyError for a name that is no step."""
        return self._dependents[name]

    def calling(self, name: str) -> CallingStep:
        """The step of that name, which calls a task."""
        step = self.steps[name]
        assert isinstance(step, CallingStep), "only steps that call a task have attempts"
        return step

    def readers(self, name: str) -> tuple[str, ...]:
        """The steps that need this one or read it in an expression, in document order."""
        return self._readers[name]

    def position(self, name: str) -> int:
        """Where the step stands in the document, from 0; KeyError for a name that is no step."""
        return self._positions[name]


def load(document: Json, *, version: str, max_step_seconds: float) -> Workflow:
    """The workflow of a document that `check` let pass, without checking it again.

    `max_step_seconds` is the timeout of steps that name none.
    """
    return Workflow(
        name=document["name"],
        version=version,
        class_name=document.get("class", DEFAULT_CLASS),
        timeout_seconds=_seconds(document, "timeout", DEFAULT_TIMEOUT_SECONDS),
        queue_timeout_seconds=parse_duration(document["queue_timeout"]) if "queue_timeout" in document else None,
        steps={
            name: step_of(name, source, max_step_seconds=max_step_seconds) for name, source in document["steps"].items()
        },
        output=template_of(document["output"]) if "output" in document else None,
    )


def _seconds(source: Mapping[str, Json], key: str, default: float) -> float:
    return parse_duration(source[key]) if key in source else default


def canonical(document: Json) -> bytes:
    """The bytes a document is stored and hashed as: compact JSON, keys sorted, but the steps in their order.

    The order of the steps is kept because it is meaning (runs show and start them in it). Raises
    ValueError or TypeError for what is no JSON.
    """
    if not isinstance(document, dict):
        return dump(document)
    return dump(
        {
            key: {name: _sorted(step) for name, step in value.items()}
            if key == "steps" and isinstance(value, dict)
            else _sorted(value)
            for key, value in sorted(document.items())
        }
    )


def _sorted(value: Json) -> Json:
    # The C encoder sorts faster than Python code could.
    return json.loads(json.dumps(value, sort_keys=True, allow_nan=False))


def version_of(document: Json) -> str:
    """A document's version: `sha256:` and the hash of its canonical form in hex."""
    return "sha256:" + hashlib.sha256(canonical(document)).hexdigest()
