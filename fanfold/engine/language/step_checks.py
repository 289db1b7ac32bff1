"""What the check of a step needs, whatever its kind is: names and limits to hold it against, and its expressions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fanfold.engine.language.issues import IssueCollector, kind_of, shortened
from fanfold.engine.language.templates import Reading, Slot, read
from fanfold.engine.language.traps import traps
from fanfold.engine.payload import Json

MAX_NODES = 200_000
"""Most nodes of the syntax trees of a document's expressions: one of ten costs a process a quarter of a millisecond,
and two kilobytes."""
CALL_KEYS = ("input", "timeout", "retry")
"""What says how a task is called."""


class StepChecks:
    """The checks that kinds of steps share. What they find goes to `found`.

    `max_step_seconds` is the longest step of the document's class, `timeout_seconds` the whole run's; None where
    the document does not say it soundly.
    """

    def __init__(
        self,
        found: IssueCollector,
        *,
        tasks: Collection[str],
        not_loaded: Mapping[str, str],
        timeout_seconds: float | None,
        class_name: str,
    ) -> None:
        self.found = found
        self.add = found.add
        self.class_name = class_name
        self.max_step_seconds: float | None = None
        self.timeout_seconds = timeout_seconds
        self._tasks = frozenset(tasks)
        self._not_loaded = not_loaded
        self._nodes = 0

    def task(self, task: Json, pointer: str) -> None:
        """A problem unless it is the name of a task that can be called."""
        if not isinstance(task, str):
            self.add(pointer, f"must be the name of a task, not {kind_of(task)}")
        elif task in self._not_loaded and task not in self._tasks:
            self.add(
                pointer,
                f"task `{shortened(task)}` can't be called, its module could not be loaded: {self._not_loaded[task]}",
            )
        elif task not in self._tasks:
            close = " or ".join(f"`{name}`" for name in self.found.near(task, self._tasks, n=3))
            hint = f"; did you mean {close}?" if close else ""
            self.add(pointer, f"there is no task `{shortened(task)}`{hint}")

    def no_call(self, step: Mapping[str, Json], pointer: str, what: str, hints: Mapping[str, str]) -> None:
        """A problem for each key that says how a task is called: `what` calls none. A second kind may be one that does.

        `hints` have a further half sentence for a key.
        """
        for key in CALL_KEYS:
            if key in step and "task" not in step and "map" not in step:
                self.add(f"{pointer}/{key}", f"{what} calls no task and has no `{key}`{hints.get(key, '')}")

    def within_the_run(self, seconds: float | None, pointer: str) -> None:
        """A problem where something goes on for longer than its run may."""
        if seconds is not None and self.timeout_seconds is not None and seconds > self.timeout_seconds:
            self.add(pointer, f"longer than the whole run's timeout, {self.timeout_seconds:g}s")

    def step_timeout(self, source: Json, pointer: str) -> None:
        """Problems of the longest time that an attempt may take."""
        seconds = self.found.duration(source, pointer)
        if seconds is None:
            return
        if self.max_step_seconds is not None and seconds > self.max_step_seconds:
            limit = f"{self.max_step_seconds:g}s"
            self.add(pointer, f"longer than {limit}, the longest step of class `{self.class_name}`")
        self.within_the_run(seconds, pointer)

    def expressions(self, source: Json, pointer: str, *, in_map: bool = False) -> Reading:
        """The expressions of a JSON value at a pointer, and their problems; `in_map`: they may name `item`, `index`."""
        reading = read(source, pointer, max_nodes=MAX_NODES - self._nodes)
        self._count(reading.slots)
        for problem in reading.problems:
            self.add(problem.pointer, problem.detail)
        for at, expression in reading.slots:
            for trap in traps(expression):
                self.add(at, f"`{shortened(expression.text)}`: {trap}")
        for at, expression in () if in_map else reading.slots:
            for root in sorted(expression.roots & {"item", "index"}):
                self.add(at, f"`{root}` is there only inside a map")
        return reading

    def _count(self, slots: Sequence[Slot]) -> None:
        """Every expression is kept in memory, by every process that works on the workflow."""
        before = self._nodes
        self._nodes += sum(expression.nodes for _, expression in slots)
        if self._nodes > MAX_NODES >= before:
            self.add("", f"the document's expressions have more than {MAX_NODES:,} parts together, the limit")
