"""Everything that can be wrong with a workflow document, found in one pass over a stranger's JSON."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

from fanfold.engine.errors import InvalidDocument, ValidationIssue
from fanfold.engine.language import graph
from fanfold.engine.language.calling import check_retry
from fanfold.engine.language.expressions import Expression
from fanfold.engine.language.issues import IssueCollector, kind_of, shortened
from fanfold.engine.language.step import Join, OnFailure
from fanfold.engine.language.step_checks import StepChecks
from fanfold.engine.language.step_kinds import STEP_KEYS, kinds_of, not_one_kind
from fanfold.engine.language.templates import Slot, escape
from fanfold.engine.language.workflow import DEFAULT_CLASS, DEFAULT_TIMEOUT_SECONDS, Workflow, load, version_of
from fanfold.engine.payload import Json, dump

MAX_BYTES = 2_000_000
"""Longest document as compact JSON: it has to fit into one DynamoDB item (400 KB) with room to spare."""
MAX_STEPS = 10_000
MAX_EXPRESSIONS = 20_000
MAX_DEPTH = 40
"""Deepest nesting of a document: a template's own limit and the levels above it."""

WORKFLOW_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
STEP_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")

DOCUMENT_KEYS = ("name", "class", "timeout", "queue_timeout", "steps", "output")


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
    problems = problems_of(document, name=name, tasks=tasks, classes=classes, not_loaded=not_loaded)
    if problems:
        raise InvalidDocument(problems)
    max_step_seconds = classes[document.get("class", DEFAULT_CLASS)]
    return load(document, version=version_of(document), max_step_seconds=max_step_seconds)


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
        self._classes = classes
        self._found = IssueCollector()
        self._add = self._found.add
        self._checks = StepChecks(
            self._found,
            tasks=tasks,
            not_loaded=not_loaded,
            class_name=DEFAULT_CLASS,
            timeout_seconds=DEFAULT_TIMEOUT_SECONDS,
        )

    def result(self) -> tuple[ValidationIssue, ...]:
        """What was found."""
        return self._found.result()

    def document(self, document: dict[str, Json], name: str | None) -> None:
        """Check the whole."""
        self._found.keys(document, DOCUMENT_KEYS, "")
        self._name(document, name)
        self._class(document)
        if "timeout" in document:
            self._checks.timeout_seconds = self._found.duration(document["timeout"], "/timeout")
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
        for pointer, expression in self._checks.expressions(document.get("output"), "/output").slots:
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
        kinds = kinds_of(step)
        if len(kinds) == 1:
            kinds[0].check_task(step, pointer, self._checks)
        else:
            self._add(pointer, not_one_kind(step))
        self._found.one_of(step, "join", tuple(Join), pointer)
        self._found.one_of(step, "on_failure", tuple(OnFailure), pointer)
        # Backwards, as they have always been told where there is more than one.
        slots = [slot for kind in reversed(kinds) for slot in kind.check(step, pointer, self._checks)]
        if "timeout" in step:
            self._checks.step_timeout(step["timeout"], f"{pointer}/timeout")
        if "retry" in step:
            check_retry(step["retry"], f"{pointer}/retry", self._found)
        if "when" in step:
            at = f"{pointer}/when"
            when = self._checks.expressions(step["when"], at)
            slots.extend(when.slots)
            if not when.single and not when.problems:
                self._add(at, 'must be exactly one expression: "${…}"')
        if "input" in step and all(kind.has_input for kind in kinds):
            slots.extend(self._checks.expressions(step["input"], f"{pointer}/input").slots)
        return slots

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
            self._checks.class_name = class_name
            self._checks.max_step_seconds = self._classes[class_name]
