"""Everything that can be wrong with a workflow document, found in one pass over a stranger's JSON."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from fanfold.engine.errors import ValidationIssue
from fanfold.engine.language import graph
from fanfold.engine.language.expressions import Expression
from fanfold.engine.language.issues import IssueCollector, kind_of, shortened
from fanfold.engine.language.map_check import check_map
from fanfold.engine.language.templates import Reading, Slot, escape, read
from fanfold.engine.language.traps import traps
from fanfold.engine.language.waits import moment_of
from fanfold.engine.payload import Json, dump

DEFAULT_CLASS = "model"
"""The class of workers of a document that names none."""
DEFAULT_TIMEOUT_SECONDS = 86_400.0
"""How long a run may take, from acceptance, when its document does not say."""
DEFAULT_MAX_ATTEMPTS = 3
"""Attempts of a step that has `retry` without `max_attempts`."""

MAX_BYTES = 2_000_000
"""Longest document as compact JSON: it has to fit into one DynamoDB item (400 KB) with room to spare."""
MAX_STEPS = 10_000
MAX_EXPRESSIONS = 20_000
MAX_NODES = 200_000
"""Most expressions of a document, and nodes of their syntax trees: an expression of ten costs a process a quarter of a
millisecond, and two kilobytes."""
MAX_DEPTH = 40
"""Deepest nesting of a document: a template's own limit and the levels above it."""
MAX_ATTEMPTS = 100
MAX_FACTOR = 100

WORKFLOW_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
STEP_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
SIGNAL_NAME = STEP_NAME

_KINDS = ("task", "map", "wait")
DOCUMENT_KEYS = ("name", "class", "timeout", "queue_timeout", "steps", "output")
STEP_KEYS = (*_KINDS, "needs", "join", "when", "on_failure", "input", "timeout", "retry")
WAIT_KEYS = ("for", "until", "signal", "timeout")
_TASK_ONLY = ("input", "timeout", "retry")
"""What says how a task is called: a wait calls none."""
RETRY_KEYS = ("max_attempts", "backoff", "factor", "max_backoff", "jitter", "on_interrupt")
_JOINS = ("succeeded", "settled", "any")


def problems_of(
    document: Json,
    *,
    name: str | None,
    tasks: Collection[str],
    classes: Mapping[str, float],
    not_loaded: Mapping[str, str] = MappingProxyType({}),
) -> tuple[ValidationIssue, ...]:
    """Every problem of a document, in document order where there is one; empty when it can be registered."""
    unreadable = _unreadable(document)
    if unreadable is not None:
        return (unreadable,)
    checker = _Checker(tasks=tasks, classes=classes, not_loaded=not_loaded)
    checker.document(document, name)
    return checker.result()


def _unreadable(document: Json) -> ValidationIssue | None:
    """What makes looking any further pointless or dangerous."""
    if not isinstance(document, dict):
        return ValidationIssue(pointer="", detail=f"a workflow is an object, not {kind_of(document)}")
    level: list[Json] = [document]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, dict) else value)
            if isinstance(child, (dict, list))
        ]
    if level:
        return ValidationIssue(pointer="", detail=f"the document is nested deeper than {MAX_DEPTH} levels")
    try:
        data = dump(document)
    except (TypeError, ValueError) as error:
        return ValidationIssue(pointer="", detail=f"the document is not JSON: {error}")
    for many, most, what in (
        (len(data), MAX_BYTES, "bytes as compact JSON"),
        (data.count(b"${"), MAX_EXPRESSIONS, "expressions"),
    ):
        if many > most:
            return ValidationIssue(pointer="", detail=f"the document has {many:,} {what}; the limit is {most:,}")
    return None


class _Checker:
    """Collects the problems of one document."""

    def __init__(self, *, tasks: Collection[str], classes: Mapping[str, float], not_loaded: Mapping[str, str]) -> None:
        self._tasks = frozenset(tasks)
        self._not_loaded = not_loaded
        self._classes = classes
        self._found = IssueCollector()
        self._nodes = 0
        self._add = self._found.add
        self._max_step_seconds: float | None = None
        self._class_name = DEFAULT_CLASS
        self._timeout_seconds: float | None = DEFAULT_TIMEOUT_SECONDS

    def result(self) -> tuple[ValidationIssue, ...]:
        """What was found."""
        return self._found.result()

    def document(self, document: dict[str, Json], name: str | None) -> None:
        """Check the whole."""
        self._found.keys(document, DOCUMENT_KEYS, "")
        self._name(document, name)
        self._class(document)
        if "timeout" in document:
            self._timeout_seconds = self._found.duration(document["timeout"], "/timeout")
        if "queue_timeout" in document:
            self._found.duration(document["queue_timeout"], "/queue_timeout")
        steps = document.get("steps")
        if "steps" not in document:
            self._add("", "`steps` is missing")
        elif not isinstance(steps, dict):
            self._add("/steps", f"must be an object of steps by name, not {kind_of(steps)}")
        elif not steps:
            self._add("/steps", "a workflow has at least one step")
        elif len(steps) > MAX_STEPS:
            self._add("/steps", f"{len(steps):,} steps; the limit is {MAX_STEPS:,}")
        else:
            self._steps(steps)
        for pointer, expression in self._expressions(document.get("output"), "/output").slots:
            # Without steps that can be read there is nothing to hold the names against.
            for mentioned in sorted(expression.steps - steps.keys() if isinstance(steps, dict) else ()):
                self._add(pointer, f"there is no step `{shortened(mentioned)}`")

    def _steps(self, steps: dict[str, Json]) -> None:
        slots: dict[str, list[Slot]] = {}
        needs: dict[str, list[str]] = {}
        for name, step in steps.items():
            pointer = f"/steps/{escape(name)}"
            if not STEP_NAME.fullmatch(name):
                self._add(pointer, "a step's name is a-z, then up to 62 of a-z, 0-9, _ and -")
            slots[name], needs[name] = [], []
            if isinstance(step, dict):
                slots[name] = self._step(step, pointer)
                needs[name] = self._needs(name, step.get("needs", []), f"{pointer}/needs", steps)
            else:
                self._add(pointer, f"a step is an object, not {kind_of(step)}")
        upstream = self._acyclic(needs)
        for name, found in slots.items():
            for pointer, expression in found:
                self._upstream_only(name, pointer, expression, steps, upstream)

    def _step(self, step: dict[str, Json], pointer: str) -> list[Slot]:
        """Check a step by itself; its expressions come back, for what they refer to."""
        self._found.keys(step, STEP_KEYS, pointer)
        self._kind_of(step, pointer)
        self._found.one_of(step, "join", _JOINS, pointer)
        self._found.one_of(step, "on_failure", ("fail", "continue"), pointer)
        slots: list[Slot] = []
        if "wait" in step:
            slots.extend(self._wait(step, pointer))
        if "map" in step:
            slots.extend(check_map(step, pointer, self._found, self._expressions))
        if "timeout" in step:
            self._step_timeout(step["timeout"], f"{pointer}/timeout")
        if "retry" in step:
            self._retry(step["retry"], f"{pointer}/retry")
        for key in ("when", "input"):
            if key in step and not (key == "input" and "map" in step):
                at = f"{pointer}/{key}"
                reading = self._expressions(step[key], at)
                slots.extend(reading.slots)
                if key == "when" and not reading.single and not reading.problems:
                    self._add(at, 'must be exactly one expression: "${…}"')
        return slots

    def _kind_of(self, step: dict[str, Json], pointer: str) -> None:
        kinds = [kind for kind in _KINDS if kind in step]
        if len(kinds) != 1:
            given = " and ".join(f"`{kind}`" for kind in kinds) or "none"
            self._add(pointer, f"a step has exactly one of `task`, `map` and `wait`; this one has {given}")
            return
        if kinds == ["task"]:
            self._task(step["task"], f"{pointer}/task")
        elif kinds == ["map"] and isinstance(step["map"], dict):
            if "task" in step["map"]:
                self._task(step["map"]["task"], f"{pointer}/map/task")
            else:
                self._add(f"{pointer}/map", "`task` is missing: what is called for each item")

    def _task(self, task: Json, pointer: str) -> None:
        if not isinstance(task, str):
            self._add(pointer, f"must be the name of a task, not {kind_of(task)}")
        elif task in self._not_loaded and task not in self._tasks:
            self._add(
                pointer,
                f"task `{shortened(task)}` can't be called, its module could not be loaded: {self._not_loaded[task]}",
            )
        elif task not in self._tasks:
            close = " or ".join(f"`{name}`" for name in self._found.near(task, self._tasks, n=3))
            hint = f"; did you mean {close}?" if close else ""
            self._add(pointer, f"there is no task `{shortened(task)}`{hint}")

    def _wait(self, step: dict[str, Json], pointer: str) -> Sequence[Slot]:
        """Check what a step waits for; its expressions come back."""
        for key in _TASK_ONLY:
            if key in step and "task" not in step and "map" not in step:
                hint = "; a wait's `timeout` stands inside `wait`" if key == "timeout" else ""
                self._add(f"{pointer}/{key}", f"a wait calls no task and has no `{key}`{hint}")
        wait, pointer = step["wait"], f"{pointer}/wait"
        if not isinstance(wait, dict):
            self._add(pointer, f"must be an object, not {kind_of(wait)}")
            return ()
        self._found.keys(wait, WAIT_KEYS, pointer)
        given = [key for key in WAIT_KEYS[:3] if key in wait]
        if len(given) != 1:
            names = " and ".join(f"`{key}`" for key in given) or "none"
            self._add(pointer, f"a wait has exactly one of `for`, `until` and `signal`; this one has {names}")
        if "signal" in wait and not (isinstance(wait["signal"], str) and SIGNAL_NAME.fullmatch(wait["signal"])):
            self._add(f"{pointer}/signal", "a signal's name is a-z, then up to 62 of a-z, 0-9, _ and -")
        if "timeout" in wait and "signal" not in wait:
            self._add(f"{pointer}/timeout", "only a wait for a signal has a `timeout`")
        for key in ("for", "timeout"):
            if key in wait:
                self._within_the_run(self._found.duration(wait[key], f"{pointer}/{key}"), f"{pointer}/{key}")
        if "until" not in wait:
            return ()
        at = f"{pointer}/until"
        if not isinstance(wait["until"], str):
            self._add(at, f"must be a time, or an expression that gives one, not {kind_of(wait['until'])}")
            return ()
        reading = self._expressions(wait["until"], at)
        if not reading.slots and not reading.problems:
            try:
                moment_of(wait["until"])
            except ValueError as error:
                self._add(at, str(error))
        return reading.slots

    def _within_the_run(self, seconds: float | None, pointer: str) -> None:
        if seconds is not None and self._timeout_seconds is not None and seconds > self._timeout_seconds:
            self._add(pointer, f"longer than the whole run's timeout, {self._timeout_seconds:g}s")

    def _needs(self, name: str, needs: Json, pointer: str, steps: Mapping[str, Json]) -> list[str]:
        """Check a step's needs by themselves; the sound ones come back."""
        if not isinstance(needs, list):
            self._add(pointer, f"must be a list of steps' names, not {kind_of(needs)}")
            return []
        sound: dict[str, None] = {}
        for slot, needed in enumerate(needs):
            at = f"{pointer}/{slot}"
            if not isinstance(needed, str):
                self._add(at, f"must be a step's name, not {kind_of(needed)}")
            elif needed == name:
                self._add(at, "a step can't need itself")
            elif needed not in steps:
                self._add(at, f"there is no step `{shortened(needed)}`")
            elif needed in sound:
                self._add(at, f"`{needed}` is there twice")
            else:
                sound[needed] = None
        return list(sound)

    def _acyclic(self, needs: Mapping[str, list[str]]) -> graph.Upstream | None:
        """What is upstream of what; None, and a problem for each cycle, when there are cycles."""
        cycles = graph.cycles(needs)
        for cycle in cycles:
            shown = [*cycle, cycle[0]] if len(cycle) <= 20 else [*cycle[:20], f"… ({len(cycle):,} steps)"]
            self._add(f"/steps/{escape(cycle[0])}/needs", f"a cycle of needs: {' → '.join(shown)}")
        return None if cycles else graph.Upstream(needs)

    def _upstream_only(
        self,
        name: str,
        pointer: str,
        expression: Expression,
        steps: Mapping[str, Json],
        upstream: graph.Upstream | None,
    ) -> None:
        for mentioned in sorted(expression.steps):
            if mentioned not in steps:
                self._add(pointer, f"there is no step `{shortened(mentioned)}`")
            elif mentioned == name:
                self._add(pointer, "a step can't refer to itself")
            # In a cycle everything is upstream of everything; there the cycle is problem enough.
            elif upstream is not None and not upstream.holds(mentioned, name):
                self._add(pointer, f"step `{mentioned}` is not upstream of `{name}`; add it to `needs`")

    def _expressions(self, source: Json, pointer: str, *, in_map: bool = False) -> Reading:
        reading = read(source, pointer, max_nodes=MAX_NODES - self._nodes)
        self._count(reading.slots)
        for problem in reading.problems:
            self._add(problem.pointer, problem.detail)
        for at, expression in reading.slots:
            for trap in traps(expression):
                self._add(at, f"`{shortened(expression.text)}`: {trap}")
        for at, expression in () if in_map else reading.slots:
            for root in sorted(expression.roots & {"item", "index"}):
                self._add(at, f"`{root}` is there only inside a map")
        return reading

    def _count(self, slots: Sequence[Slot]) -> None:
        """Every expression is kept in memory, by every process that works on the workflow."""
        before = self._nodes
        self._nodes += sum(expression.nodes for _, expression in slots)
        if self._nodes > MAX_NODES >= before:
            self._add("", f"the document's expressions have more than {MAX_NODES:,} parts together, the limit")

    def _step_timeout(self, source: Json, pointer: str) -> None:
        seconds = self._found.duration(source, pointer)
        if seconds is None:
            return
        if self._max_step_seconds is not None and seconds > self._max_step_seconds:
            limit = f"{self._max_step_seconds:g}s"
            self._add(pointer, f"longer than {limit}, the longest step of class `{self._class_name}`")
        self._within_the_run(seconds, pointer)

    def _retry(self, retry: Json, pointer: str) -> None:
        if not isinstance(retry, dict):
            self._add(pointer, f"must be an object, not {kind_of(retry)}")
            return
        self._found.keys(retry, RETRY_KEYS, pointer)
        self._found.one_of(retry, "jitter", ("full", "none"), pointer)
        self._found.one_of(retry, "on_interrupt", ("retry", "fail"), pointer)
        if "max_attempts" in retry:
            attempts = retry["max_attempts"]
            if not isinstance(attempts, int) or isinstance(attempts, bool) or not 1 <= attempts <= MAX_ATTEMPTS:
                self._add(f"{pointer}/max_attempts", f"must be a whole number from 1 to {MAX_ATTEMPTS}")
        if "factor" in retry:
            factor = retry["factor"]
            if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not 1 <= factor <= MAX_FACTOR:
                self._add(f"{pointer}/factor", f"must be a number from 1 to {MAX_FACTOR}")
        backoff = self._found.duration(retry["backoff"], f"{pointer}/backoff") if "backoff" in retry else 1.0
        if "max_backoff" in retry:
            longest = self._found.duration(retry["max_backoff"], f"{pointer}/max_backoff")
            if longest is not None and backoff is not None and longest < backoff:
                self._add(f"{pointer}/max_backoff", f"less than the first delay, `backoff` ({backoff:g}s)")

    def _name(self, document: dict[str, Json], name: str | None) -> None:
        given = document.get("name")
        if "name" not in document:
            self._add("", "`name` is missing")
        elif not isinstance(given, str) or not WORKFLOW_NAME.fullmatch(given):
            self._add("/name", "a workflow's name is a-z, then up to 62 of a-z, 0-9 and -")
        elif name is not None and given != name:
            self._add("/name", f"the document is called `{given}`, but was sent to `{name}`")

    def _class(self, document: dict[str, Json]) -> None:
        class_name = document.get("class", DEFAULT_CLASS)
        if not isinstance(class_name, str):
            self._add("/class", f"must be the name of a class, not {kind_of(class_name)}")
        elif class_name not in self._classes:
            there = ", ".join(f"`{known}`" for known in self._classes) or "none"
            self._add("/class", f"there is no class `{shortened(class_name)}`; there is {there}")
        else:
            self._class_name = class_name
            self._max_step_seconds = self._classes[class_name]
