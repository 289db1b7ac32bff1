"""A workflow: the steps a run takes, as checked values. Documents come in as parsed JSON.

`check` takes a stranger's document and tells everything that is wrong with it; `load` builds the
same `Workflow` from a document that was checked when it was registered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from fanfold.engine.errors import InvalidDocument
from fanfold.engine.language import document_check as documents
from fanfold.engine.language import graph
from fanfold.engine.language.duration import parse_duration
from fanfold.engine.language.maps import DEFAULT_ITEM_SECONDS, MapSpec, map_of
from fanfold.engine.language.templates import Template, compile_template
from fanfold.engine.language.waits import WaitSpec, WaitUntil, wait_of
from fanfold.engine.payload import Json, dump

DEFAULT_CLASS = documents.DEFAULT_CLASS
DEFAULT_TIMEOUT_SECONDS = documents.DEFAULT_TIMEOUT_SECONDS


class Join(StrEnum):
    """When a step with needs gets its turn; it gets it once."""

    SUCCEEDED = "succeeded"  # all needs succeeded; otherwise the step is skipped
    SETTLED = "settled"  # all needs have settled, however
    ANY = "any"  # the first need succeeded; skipped when none did


class OnFailure(StrEnum):
    """What a step's final failure means for its run."""

    FAIL = "fail"  # the run fails at once
    CONTINUE = "continue"  # the step settles as failed, the run goes on


class OnInterrupt(StrEnum):
    """What is done with an attempt whose worker died."""

    RETRY = "retry"  # begin another one
    FAIL = "fail"  # settle the step as failed: it is begun at most once


class Jitter(StrEnum):
    """How chance enters the delay before a retry."""

    FULL = "full"  # anything between nothing and the backoff
    NONE = "none"  # the backoff itself


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a step is attempted, and how long after the nth failure: `backoff_seconds · factor^(n-1)`, bounded."""

    max_attempts: int = 1
    backoff_seconds: float = 1.0
    factor: float = 2.0
    max_backoff_seconds: float = 60.0
    jitter: Jitter = Jitter.FULL
    on_interrupt: OnInterrupt = OnInterrupt.RETRY


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: the task it calls or what it waits for, after which others, and what its failure means.

    `task` is empty for a step that calls none; `input`, `timeout_seconds` and `retry` are a task's. With a `map`
    they are those of one item.
    """

    name: str
    task: str = ""
    wait: WaitSpec | None = None
    map: MapSpec | None = None
    needs: tuple[str, ...] = ()
    join: Join = Join.SUCCEEDED
    when: Template | None = None
    on_failure: OnFailure = OnFailure.FAIL
    input: Template
    timeout_seconds: float = 0.0
    retry: RetryPolicy = RetryPolicy()

    @property
    def templates(self) -> tuple[Template, ...]:
        """Everything of the step that is evaluated against its run."""
        over = None if self.map is None else self.map.over
        until = self.wait.moment if isinstance(self.wait, WaitUntil) else None
        return tuple(template for template in (self.when, self.input, over, until) if template is not None)

    @property
    def reads(self) -> frozenset[str]:
        """The steps whose record this one may look at before it has settled."""
        return frozenset(self.needs).union(*(template.steps for template in self.templates))


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
        object.__setattr__(self, "tasks", frozenset(step.task for step in self.steps.values() if step.task))
        longest = max((step.timeout_seconds for step in self.steps.values()), default=0.0)
        object.__setattr__(self, "longest_step_seconds", longest)

    def dependents(self, name: str) -> tuple[str, ...]:
        """The steps that need this one directly, in document order; KeyError for a name that is no step."""
        return self._dependents[name]

    def readers(self, name: str) -> tuple[str, ...]:
        """The steps that need this one or read it in an expression, in document order."""
        return self._readers[name]

    def position(self, name: str) -> int:
        """Where the step stands in the document, from 0; KeyError for a name that is no step."""
        return self._positions[name]


def check(
    document: Json,
    *,
    name: str | None,
    tasks: Collection[str],
    classes: Mapping[str, float],
    not_loaded: Mapping[str, str] = MappingProxyType({}),
) -> Workflow:
    """The workflow a stranger's document describes, or `InvalidDocument` with every problem in it.

    `name` is what the document must be called (None: whatever it says), `tasks` the names a step may
    call, `classes` the longest step, in seconds, of each class of workers, `not_loaded` the tasks that are there but
    can't be called, with the reason.
    """
    problems = documents.problems_of(document, name=name, tasks=tasks, classes=classes, not_loaded=not_loaded)
    if problems:
        raise InvalidDocument(problems)
    max_step_seconds = classes[document.get("class", DEFAULT_CLASS)]
    return load(document, version=version_of(document), max_step_seconds=max_step_seconds)


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
        steps={name: _step(name, source, max_step_seconds) for name, source in document["steps"].items()},
        output=_template(document["output"]) if "output" in document else None,
    )


def _step(name: str, source: Mapping[str, Json], max_step_seconds: float) -> Step:
    mapped = source.get("map")
    task, given = (source.get("task", ""), source.get("input", {})) if mapped is None else _of_item(mapped)
    longest = max_step_seconds if mapped is None else min(max_step_seconds, DEFAULT_ITEM_SECONDS)
    return Step(
        name=name,
        task=task,
        wait=wait_of(source["wait"]) if "wait" in source else None,
        map=None if mapped is None else map_of(mapped),
        needs=tuple(source.get("needs", ())),
        join=Join(source.get("join", Join.SUCCEEDED)),
        when=_template(source["when"]) if "when" in source else None,
        on_failure=OnFailure(source.get("on_failure", OnFailure.FAIL)),
        input=_template(given),
        timeout_seconds=_seconds(source, "timeout", longest) if task else 0.0,
        retry=_retry(source["retry"]) if "retry" in source else RetryPolicy(),
    )


def _of_item(mapped: Mapping[str, Json]) -> tuple[str, Json]:
    """The task of a map's items, and what it is given: the item itself where the map does not say."""
    return mapped["task"], mapped.get("input", "${item}")


def _retry(source: Mapping[str, Json]) -> RetryPolicy:
    backoff_seconds = _seconds(source, "backoff", 1.0)
    return RetryPolicy(
        max_attempts=source.get("max_attempts", documents.DEFAULT_MAX_ATTEMPTS),
        backoff_seconds=backoff_seconds,
        factor=float(source.get("factor", 2.0)),
        # Who asks for a first delay of 5m and says nothing of a longest one doesn't mean 60s.
        max_backoff_seconds=_seconds(source, "max_backoff", max(60.0, backoff_seconds)),
        jitter=Jitter(source.get("jitter", Jitter.FULL)),
        on_interrupt=OnInterrupt(source.get("on_interrupt", OnInterrupt.RETRY)),
    )


def _seconds(source: Mapping[str, Json], key: str, default: float) -> float:
    return parse_duration(source[key]) if key in source else default


def _template(source: Json) -> Template:
    template, problems = compile_template(source, "")
    if template is None:
        # Only a document that `check` never saw gets here.
        raise InvalidDocument(tuple(problems))
    return template


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
