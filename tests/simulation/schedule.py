"""Plays one schedule from its seed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from fanfold.adapters.memory.queue import MAX_WAIT_SECONDS
from fanfold.engine.language.workflow import Workflow, load
from fanfold.engine.payload import Json
from fanfold.engine.record import sealing
from fanfold.service import commit, workflow_cache
from fanfold.service.worker import process
from fanfold.service.worker.dispositions import Disposition
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.run_commits import RunCommits
from tests.simulation.deployment import Deployment
from tests.simulation.fate import Fate
from tests.simulation.loop import SimulationLoop
from tests.simulation.outcome import Line, Played
from tests.simulation.perils import Bug
from tests.simulation.simulation import Simulation
from tests.simulation.workload import CURRENT


def play(seed: int, *, spared: frozenset[str] = frozenset(), runs: int | None = None) -> Played:
    """Play a schedule. `spared` and `runs` make it smaller than its seed says: for shrinking."""
    fate = Fate(seed, spared=spared)
    return play_out(fate, Deployment.by_chance(fate, runs=runs))[0]


def play_out(fate: Fate, deployment: Deployment) -> tuple[Played, list[Line]]:
    """Play a fate in a deployment; returns the whole trace besides."""

    async def schedule() -> tuple[Played, list[Line]]:
        simulation = Simulation(fate, deployment)
        return await simulation.play(), simulation.trace

    with instrumented(), asyncio.Runner(loop_factory=SimulationLoop) as runner:
        return runner.run(schedule())


@contextmanager
def instrumented() -> Iterator[None]:
    """Bugs that the code contains by logging them are failures here; nothing is logged; nobody asks for threads."""
    handle = MessageHandler.handle

    async def watched(self: MessageHandler, *args: Any, **given: Any) -> Disposition:
        try:
            return await handle(self, *args, **given)
        except Bug:
            raise
        except Exception as error:
            CURRENT.get().audit.fail("a message's handling raises nothing", repr(error))
            raise

    decide = RunCommits._decide

    def perilous(self: RunCommits, events: Any, loaded: Any, *, goes_on: bool = True) -> Any:
        if goes_on and (self._own.held or not self.bare):
            CURRENT.get().perils.decides(self._own.record)
        return decide(self, events, loaded, goes_on=goes_on)

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            patch.object(MessageHandler, "handle", watched),
            patch.object(RunCommits, "_decide", perilous),
            patch.object(process, "flush", lambda: None),
            # Idle polls are most of what goes on; SQS lets none wait longer.
            patch.object(process, "POLL_SECONDS", MAX_WAIT_SECONDS),
            # Each process of the fleet loads the few documents anew.
            patch.object(workflow_cache, "load", _remembering()),
            # The runs here are short; sealed as if they were long, theirs is every way to read a record.
            patch.object(commit, "SEAL_OVER_BYTES", 300),
            patch.object(sealing, "MIN_BYTES", 40),
        ):
            yield
    finally:
        logging.disable(before)


def _remembering() -> Callable[..., Workflow]:
    """`load`, once for each version."""
    known: dict[tuple[str, float], Workflow] = {}

    def remembered(document: Json, *, version: str, max_step_seconds: float) -> Workflow:
        key = (version, max_step_seconds)
        if key not in known:
            known[key] = load(document, version=version, max_step_seconds=max_step_seconds)
        return known[key]

    return remembered
