"""What our own code does wrong: a decision that takes all memory and kills the process, a bug that raises.

The bug is in deciding on some runs, or in the adapter of some call.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fanfold.engine.ports import RunKey
from fanfold.engine.record.run import Run
from tests.support.virtual import PROCESS

if TYPE_CHECKING:
    from tests.simulation.nodes import Node
    from tests.simulation.simulation import Simulation

OFTEN = 0.06
"""Of the schedules, so many have such a workflow."""

ALWAYS = 10_000

Workflows = Mapping[tuple[str, str], int]
"""How many decisions on a run of this workflow kill their process before anything is written."""


def some(rng: random.Random, workflows: Iterable[tuple[str, str]]) -> Workflows:
    """Now and then one of the workflows."""
    return {rng.choice(sorted(workflows)): rng.choice((1, 2, 4, ALWAYS))} if rng.random() < OFTEN else {}


class Bug(Exception):
    """Something in our own code: no service's fault, and nothing that anybody declares."""


ADAPTERS: Sequence[tuple[str, str]] = (
    ("runs", "put"), ("runs", "get"), ("runs", "segments"), ("runs", "put_segment"), ("runs", "page"), ("runs", "due"),
    ("runs", "get_many"), ("queue", "send"), ("queue", "delete"), ("queue", "hide"), ("slots", "give_back"),
    ("blobs", "get"), ("blobs", "put"), ("catalog", "version"), ("fan_out", "start"), ("fan_out", "going"),
    ("map_records", "read"), ("map_records", "put"), ("marks", "get"), ("marks", "put"),
)  # fmt: skip
"""The calls in whose adapters there may be a bug."""

SERVED = frozenset({"api", "operator", "client"})
"""Processes that answer a caller: there a bug is a 500, which is no schedule's business."""


def flawed(rng: random.Random) -> Mapping[tuple[str, str], int]:
    """Now and then one or two calls whose adapters raise so many times."""
    if rng.random() >= OFTEN:
        return {}
    return {rng.choice(ADAPTERS): rng.choice((1, 1, 2, 5)) for _ in range(rng.choice((1, 2)))}


class Perils:
    """What comes of those decisions. Each death must count in the end, and so the run must end."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._deaths: Counter[RunKey] = Counter()
        self.bugs: Counter[RunKey] = Counter()
        self.flaws = 0
        self._flaws = dict(simulation.deployment.flawed)

    def decides(self, run: Run) -> None:
        """A process decides what follows for a run: that may be its end."""
        simulation = self._simulation
        key = RunKey(tenant=run.tenant, run_id=run.id)
        if self.bugs[key] < simulation.deployment.buggy.get((run.tenant, run.workflow), 0):
            self.bugs[key] += 1
            self._are_few(self.bugs, run)
            node = simulation.nodes[PROCESS.get()]
            simulation.note(node.name, f"fails at {run.id[:6]}", self.bugs[key])
            node.disturbed()
            raise Bug("no decision")
        times = simulation.deployment.lethal.get((run.tenant, run.workflow), 0)
        if self._deaths[key] >= times:
            return
        self._deaths[key] += 1
        self._are_few(self._deaths, run)
        simulation.nodes[PROCESS.get()].kill(f"deciding on {run.id[:6]}")
        raise asyncio.CancelledError

    def calls(self, node: Node, port: str, method: str) -> None:
        """A process calls a service: its own code may be wrong there, for a while."""
        simulation = self._simulation
        left = self._flaws.get((port, method), 0)
        if not left or node.kind in SERVED or simulation.loop.time() >= simulation.calm_at:
            return
        self._flaws[port, method] = left - 1
        self.flaws += 1
        simulation.note(node.name, f"{port}.{method}", "a bug")
        node.flawed()
        raise Bug(f"{port}.{method}")

    def _are_few(self, counts: Counter[RunKey], run: Run) -> None:
        """Five deaths end a try. What is not known of a message is not counted: the first death by each of them."""
        simulation = self._simulation
        limit = max(release.settings.max_crashes for release in simulation.rollout.all)
        messages = len(simulation.fate.struck) + simulation.audit.liveness.passes + simulation.audit.admissions.submits
        messages += self.flaws + simulation.audit.moves.asked + simulation.audit.maps.rings
        most = limit * run.try_number + messages
        deaths = counts[RunKey(tenant=run.tenant, run_id=run.id)]
        simulation.audit.hold(deaths <= most, "a run kills no more than it may", f"{run.id}: {deaths} > {most}")
