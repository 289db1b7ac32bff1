"""What a scenario is given and what it gives back."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loadtest.environment import environment
from loadtest.options import chosen
from loadtest.results import Recorder
from loadtest.swarm import Request, swarm
from loadtest.systems_under_test import Needs, Target, opened
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

    def swarm(self, locustfile: str, target: Target, *, users: int, seconds: float, **facts: Any) -> list[Request]:
        """What `loadtest.swarm.swarm` does; every request becomes a raw row, with its own facts and the `phase`."""
        self.say(f"{locustfile}: {users} users for {seconds:g} s")
        requests = swarm(locustfile, target, users=users, seconds=seconds, folder=self.scratch, facts=facts)
        phase = {"phase": facts["phase"]} if "phase" in facts else {}
        for request in requests:
            row = {"name": request.name, "begun": request.begun, "seconds": request.seconds, "status": request.status}
            error = {"error": request.error} if request.error else {}
            self.recorder.row(**row, **phase, **error, **request.facts)
        return requests

    def keep(self, phase: str, runs: Sequence[Mapping[str, Any]]) -> None:
        """Make a raw row of each listed run, with its times."""
        for run in runs:
            facts = {name: run[name] for name in ("id", "status", "created_at", "started_at", "finished_at")}
            self.recorder.row(phase=phase, **facts)

    def timed(self, check: Check) -> Check:
        """A claim about time, speed or size: the short version only shows it."""
        return replace(check, shown=True) if self.quick else check

    def say(self, text: str) -> None:
        """One line of progress."""
        print(text, file=sys.stderr, flush=True)


Scenario = Callable[..., Found]
"""Takes a session, and its options by keyword: `loadtest.options` says how they become a command's."""


def perform(
    scenario: Scenario, *, name: str, kind: str, folder: Path, quick: bool, options: Mapping[str, Any] | None = None
) -> bool:
    """Run a scenario and keep what it found; says whether every claim holds.

    `options` that are None are left to the scenario. What a scenario raises is kept as well, and raised again;
    a scenario that is interrupted leaves nothing.
    """
    values = chosen(scenario, options or {}, quick=quick)
    with (
        TemporaryDirectory(prefix="fanfold-load-") as scratch,
        Recorder(folder, scenario=name, environment=environment(kind)) as recorder,
    ):
        recorder.note(quick=quick, options=values)
        session = Session(kind=kind, recorder=recorder, scratch=Path(scratch), quick=quick)
        found = scenario(session, **values)
        if mistaken := {check.aim for check in found.checks if check.aim and name not in check.aim.scenarios}:
            raise ValueError(f"{name} answers targets whose results are looked for elsewhere: {sorted(mistaken)}")
        return recorder.finish(figures=found.figures, checks=found.checks)
