"""What a scenario is given and what it gives back."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loadtest.environment import environment
from loadtest.results import Recorder
from loadtest.targets import Needs, Target, opened
from loadtest.verdict import Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a scenario found: figures by name, and the claims held against them."""

    figures: Mapping[str, Any]
    checks: Sequence[Check]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One execution of a scenario: where to aim, where to write, and a tag of its own for its runs.

    `quick` asks for the short version, whose figures show that the scenario works rather than what it measures.
    """

    kind: str
    recorder: Recorder
    scratch: Path
    quick: bool = False
    tag: str = field(default_factory=lambda: f"load={uuid.uuid4().hex[:12]}")

    @contextmanager
    def target(self, needs: Needs) -> Iterator[Target]:
        """The target as this scenario needs it."""
        folder = self.scratch / uuid.uuid4().hex[:8]
        folder.mkdir()
        with opened(self.kind, needs, folder) as target:
            self.recorder.note(
                settings_that_differ=dict(target.differing), workers=needs.workers, concurrency=needs.concurrency
            )
            yield target

    def say(self, text: str) -> None:
        """One line of progress."""
        print(text, file=sys.stderr, flush=True)


Scenario = Callable[[Session], Found]


def perform(scenario: Scenario, *, name: str, kind: str, folder: Path, quick: bool) -> bool:
    """Run a scenario and keep what it found; says whether every claim holds."""
    with (
        TemporaryDirectory(prefix="fanfold-load-") as scratch,
        Recorder(folder, scenario=name, environment=environment(kind)) as recorder,
    ):
        session = Session(kind=kind, recorder=recorder, scratch=Path(scratch), quick=quick)
        found = scenario(session)
        return recorder.finish(figures=found.figures, checks=found.checks)
