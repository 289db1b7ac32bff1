"""Tries every place at which a worker can die, one at a time or in pairs."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fanfold.engine.language.document_check import check as check_document
from fanfold.engine.language.workflow import DEFAULT_CLASS, version_of
from fanfold.engine.payload import Json
from fanfold.engine.record.run import Run, Status
from fanfold.explore.comparison import Wrong, content, end_of, judge, unexpected
from fanfold.explore.modules import ModuleState
from fanfold.explore.scenario import Scenario
from fanfold.explore.simulation import Simulation
from fanfold.explore.trace import Crash, Effect, Moment, Trace
from fanfold.service.settings import ClassSettings, Settings
from fanfold.tasks import registry
from fanfold.testing.virtual_time import run as on_virtual_time
from fanfold.text.document_text import MalformedText, from_text

DEADLY: Final = frozenset({"chaos.crash"})
"""Tasks that kill their process, which here is the explorer's own."""

Check = Callable[[Run, Sequence[Effect]], None]
"""A user's check of an ended run and its effects; raises AssertionError."""


class WrongEnds(AssertionError):
    """Some tries ended wrong; the message lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One try: where the worker died (`where`, a text for each death), and what was `wrong` with the end."""

    where: tuple[str, ...]
    wrong: tuple[Wrong, ...]

    def __str__(self) -> str:
        return "\nthen ".join(self.where) or "undisturbed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """The result of all tries. `end` (status and reason) and `calls` are those of the undisturbed run.

    `notes` say what was not compared, and why.
    """

    workflow: str
    end: str
    calls: tuple[str, ...]
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()

    @property
    def wrong(self) -> tuple[Point, ...]:
        """The tries that ended wrong."""
        return tuple(point for point in self.points if point.wrong)

    def must_be_right(self) -> None:
        """Raises `WrongEnds`, naming call, step and error, unless every try ended right."""
        __tracebackhide__ = True  # pytest shows the author's line, not this one
        if self.wrong:
            lines = [f"{len(self.wrong)} of {len(self.points)} tries of {self.workflow!r} end wrong; the worker dies"]
            for point in self.wrong:
                lines += [f"  {line}" for line in str(point).splitlines()]
                lines += [f"    {wrong}" for wrong in point.wrong]
            raise WrongEnds("\n".join(lines))


def explore(
    workflow: Mapping[str, Json] | Path | str,
    input: Json = None,
    *,
    signals: Mapping[str, Json] | None = None,
    ends: Status = Status.SUCCEEDED,
    pairs: bool = False,
    check: Check | None = None,
    settings: Settings | None = None,
    progress: Callable[[int, int, Point], None] | None = None,
) -> Exploration:
    """Kill the worker of a run before and after each of its calls to a service, and check how the run ends.

    `workflow` is a document, or the path of one. `signals` are the payloads of the signals its waits
    get, by name. `ends` is how the run has to end undisturbed; where it ends otherwise, that alone is told.
    `pairs`: after each first death also at every place of what follows (quadratic).
    `progress` is called with each try, its number, and how many there are so far as is known.
    Raises `InvalidDocument`, ValueError for a task that would kill the explorer itself, and `Stalled` for
    one that spins. Not to be called on a running event loop.
    """
    play = _play(workflow, input, signals or {}, settings)
    undisturbed, again = _perform(play, ()), _perform(play, ())
    explorer = _Explorer(play, undisturbed, outputs=_outputs(undisturbed) == _outputs(again), check=check)
    assert undisturbed.run is not None, "a course that was played has its run"
    points = [explorer.point(undisturbed, expected=ends)]
    if not points[0].wrong:
        points = []
        for point, total in explorer.tries(pairs=pairs):
            points.append(point)
            if progress is not None:
                progress(len(points), total, point)
    return Exploration(
        workflow=play.workflow.name,
        end=end_of(undisturbed.run),
        calls=tuple(str(site) for site in undisturbed.sites),
        points=tuple(points),
        notes=explorer.notes,
    )


class _Explorer:
    """Tries crashes of a scenario and compares them with the undisturbed run."""

    def __init__(self, play: Scenario, undisturbed: Trace, *, outputs: bool, check: Check | None) -> None:
        self._play = play
        self._undisturbed = undisturbed
        self._outputs = outputs
        self._check = check
        self.notes = (
            () if outputs else ("The outputs differ from one undisturbed run to the next: they were not compared.",)
        )

    def tries(self, *, pairs: bool) -> Iterator[tuple[Point, int]]:
        """Every try, and the number of tries as far as it is known."""
        total = 2 * len(self._undisturbed.sites)
        for first in _crashes(self._undisturbed, after=0):
            course = _perform(self._play, (first,))
            seconds = list(_crashes(course, after=first.number)) if pairs and course.struck else []
            total += len(seconds)
            yield self.point(course), total
            for second in seconds:
                yield self.point(_perform(self._play, (first, second))), total

    def point(self, course: Trace, *, expected: Status | None = None) -> Point:
        """What one course came to; `expected`: how it is to end by itself, not by comparison."""
        wrong = list(judge(course, self._undisturbed, self._play.workflow, outputs=self._outputs))
        if expected is not None and course.run is not None:
            wrong += unexpected(course.run, expected)
        if self._check is not None and course.run is not None and course.run.terminal:
            try:
                self._check(course.run, tuple(course.effects))
            except AssertionError as error:
                # Pytest adds further lines about its assertion.
                says = (str(error) or "it is not right").splitlines()[0]
                wrong.append(Wrong(step=None, what=f"the check says: {says}"))
        where = tuple(f"{moment} {site.process}'s call {site.number}, {site}" for moment, site in course.struck)
        return Point(where=where, wrong=tuple(wrong))


def _crashes(course: Trace, *, after: int) -> Iterator[Crash]:
    """Both moments of each later call. A call without an answer (a last poll) has no after."""
    for site in course.sites[after:]:
        yield Crash(site.number, Moment.BEFORE)
        if site.ended:
            yield Crash(site.number, Moment.AFTER)


def _perform(play: Scenario, crashes: Sequence[Crash]) -> Trace:
    async def main() -> Trace:
        return await Simulation(play, crashes).perform()

    with _silence():
        try:
            return on_virtual_time(main())
        finally:
            play.modules.restore()


@contextmanager
def _silence() -> Iterator[None]:
    """Silence workers' logs and tasks' prints, which would repeat a thousand times."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)


def _play(
    workflow: Mapping[str, Json] | Path | str, input: Json, signals: Mapping[str, Json], settings: Settings | None
) -> Scenario:
    document = workflow if isinstance(workflow, Mapping) else _read(Path(workflow))
    class_name = document.get("class", DEFAULT_CLASS) if isinstance(document, Mapping) else DEFAULT_CLASS
    if settings is None:
        classes = {str(class_name): ClassSettings(state_machine="memory")}
        settings = Settings(chaos=True, classes=classes, mock_latency_ms=20)
    limits = {name: of_class.max_step_seconds for name, of_class in settings.classes.items()}
    checked = check_document(document, name=None, tasks=registry.names(chaos=settings.chaos), classes=limits)
    called = sorted(checked.tasks)
    if deadly := DEADLY.intersection(called):
        raise ValueError(f"{', '.join(deadly)} would kill the explorer: the explorer does the killing")
    modules = ModuleState(registry.find(name, chaos=settings.chaos).function for name in called)
    version = version_of(document)
    return Scenario(
        workflow=replace(checked, version=version),
        document=document,
        input={} if input is None else input,
        signals=signals,
        settings=settings,
        modules=modules,
    )


def _read(path: Path) -> Json:
    try:
        return from_text(path.read_bytes())
    except MalformedText as error:
        raise ValueError(f"{path} is no workflow document: {error}") from error


def _outputs(course: Trace) -> object:
    assert course.run is not None, "a course that was played has its run"
    return content(course.run.output), {name: content(state.output) for name, state in course.run.steps.items()}
