"""Clients: they submit, repeat what was not answered, send a key twice, and come back when the queue is full."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from fanfold.engine.admission.lanes import LaneRequest
from fanfold.engine.errors import InfrastructureError, InvalidDocument, KeyReused, LaneDenied, QueueFull
from fanfold.engine.ports import RunKey
from fanfold.service.api.control import Control
from fanfold.service.api.forking import Forker
from fanfold.service.api.submit import Submission, Submitted, Submitter
from fanfold.service.workflow_cache import WorkflowCache
from tests.simulation.nodes import Node

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

T = TypeVar("T")

ANSWER_SECONDS = 29
"""API Gateway gives up then; the function goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One submit a client wants to get through, at this time."""

    at: float
    tenant: str
    workflow: str
    marker: str
    padding: int
    key: str | None
    delay: float
    lane: str | None = None

    def submission(self) -> Submission:
        body = f"{self.workflow}/{self.marker}"
        return Submission(
            tenant=self.tenant,
            workflow=self.workflow,
            input={"marker": self.marker, "pad": "x" * self.padding},
            key=self.key,
            urgency=LaneRequest(lane=self.lane),
            delay_seconds=self.delay,
            request_hash=hashlib.sha256(body.encode()).hexdigest(),
        )


def wishes(rng: random.Random, workflows: list[tuple[str, str]], *, runs: int, within: float) -> list[Wish]:
    """What is submitted in a schedule; some of it by two clients with one key, some of those with two bodies."""
    found: list[Wish] = []
    for number in range(runs):
        tenant, workflow = rng.choice(workflows)
        keyed = rng.random() < 0.6
        wish = Wish(
            at=rng.random() * within,
            tenant=tenant,
            workflow=workflow,
            marker=f"{tenant}:{number}",
            padding=rng.choice((0, 0, 900)),
            key=f"k{number}" if keyed else None,
            delay=rng.choice((0, 0, 0, 0, 12.5, 70)),
        )
        found.append(wish)
        if keyed and rng.random() < 0.3:
            same = rng.random() < 0.7
            again = rng.choice((0.0, 0.01, 30.0))
            marker = wish.marker if same else f"{tenant}:{number}b"
            found.append(
                Wish(
                    at=wish.at + again,
                    tenant=tenant,
                    workflow=workflow,
                    marker=marker,
                    padding=wish.padding,
                    key=wish.key,
                    delay=wish.delay,
                )
            )
    return found


def in_lanes(rng: random.Random, wishes: Sequence[Wish], lanes: Sequence[str]) -> list[Wish]:
    """The wishes, each in some lane or in the usual one; the same body, the same lane."""
    chosen: dict[str, str | None] = {wish.marker: rng.choice((*lanes, None)) for wish in wishes}
    return [replace(wish, lane=chosen[wish.marker]) for wish in wishes]


@dataclass(frozen=True, slots=True)
class Desk:
    """One of the API's processes, and what it works with."""

    node: Node
    submitter: Submitter
    control: Control
    forker: Forker

    @classmethod
    def opened(cls, simulation: Simulation) -> Desk:
        """A new process."""
        node = simulation.node("api")
        services = node.services
        workflows = WorkflowCache(services.catalog, node.settings.classes)
        submitter = Submitter(services, workflows)
        return cls(node, submitter, Control(services, workflows), Forker(services, workflows, submitter))


class Api:
    """The API's processes: a dead one is replaced by the next request's."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._desk: Desk | None = None

    def begin(self, asked: Submission) -> tuple[Node, asyncio.Task[Submitted]]:
        """A submit is on its way."""
        self._simulation.audit.admissions.submits += 1
        return self.ask(lambda desk: desk.submitter.submit(asked))

    def ask(self, call: Callable[[Desk], Coroutine[Any, Any, T]]) -> tuple[Node, asyncio.Task[T]]:
        """A request is on its way."""
        if self._desk is None or self._desk.node.dead or not self._simulation.rollout.keeps(self._desk.node):
            self._desk = Desk.opened(self._simulation)
        return self._desk.node, self._desk.node.begin(call(self._desk))


async def client(simulation: Simulation, api: Api, wish: Wish) -> None:
    """Tries until it has its answer, or for some minutes."""
    await asyncio.sleep(wish.at)
    asked = wish.submission()
    for attempt in range(8):
        node, task = api.begin(asked)
        await asyncio.wait({task}, timeout=ANSWER_SECONDS)
        pause = float(2**attempt)
        if task.done() and not task.cancelled() and not node.dead:
            match task.exception():
                case None:
                    return answered(simulation, wish, task.result())
                case KeyReused():
                    simulation.audit.hold(wish.key is not None, "a key is reused only where there is one", wish)
                    return None
                case QueueFull():
                    pause = 20.0
                case InvalidDocument() | LaneDenied() if simulation.deployment.releases:
                    pause = 20.0  # its class or lane is not deployed at the moment
                case InfrastructureError():
                    pass
                case error:
                    simulation.audit.fail("a submit fails as declared", repr(error))
        if wish.key is None and pause != 20.0:
            return None  # without a key it can't know, so it does not repeat
        await asyncio.sleep(pause)
    return None


def answered(simulation: Simulation, wish: Wish, answer: Submitted) -> None:
    """A client has its answer: an id that it can go by."""
    run = answer.run
    key = RunKey(tenant=wish.tenant, run_id=run.id)
    simulation.note("client", "got", f"{run.id[:6]} {'replayed' if answer.replayed else 'accepted'}")
    row = simulation.audit.latest.get(key)
    simulation.audit.hold(row is not None, "an id that was returned can be read", run.id)
    if row is not None:
        simulation.audit.hold(row.submission == run.submission, "the answer is about the run", run.id)
    simulation.returned[key] = wish.marker
