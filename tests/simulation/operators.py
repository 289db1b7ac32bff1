"""Operators: they cancel, pause, resume, signal, redrive and fork, at any moment, sometimes two of them at once."""

from __future__ import annotations

import asyncio
import hashlib
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fanfold.engine.errors import CallerError, InfrastructureError, LimitExceeded, QueueFull
from fanfold.engine.payload import Value, dump
from fanfold.engine.ports import RunKey
from fanfold.engine.record.operations import OPERATIONS, Operation
from fanfold.engine.record.run import Run, Status, StepStatus
from fanfold.engine.rules.events import (
    CancelAsked,
    Keyed,
    OperatorRequest,
    PauseAsked,
    RedriveAsked,
    ResumeAsked,
    Signalled,
)
from fanfold.engine.rules.kinds.wait_step import signal_of
from fanfold.service.api.control import Done
from fanfold.service.api.forking import Fork
from fanfold.service.api.submit import Submitted
from fanfold.service.payloads import payload_key
from tests.simulation.clients import ANSWER_SECONDS, Api, Desk
from tests.simulation.features import SIGNALS

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

CLOSING_SECONDS = 45
"""Pause between the rounds of the operator who brings everything to its end."""

KINDS = (
    *[Operation.SIGNAL] * 6,
    *[Operation.PAUSE, Operation.RESUME, Operation.REDRIVE] * 3,
    *[Operation.CANCEL, Operation.FORK] * 2,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One move an operator wants to make at this time.

    `number` is its own, and that of no other but its twin; `which` in [0, 1) chooses a run, and of a fork
    the step; `big` signals have payloads that are kept apart.
    """

    at: float
    kind: Operation
    number: int
    which: float = 0.0
    keyed: bool = False
    name: str = SIGNALS[0]
    big: bool = False

    @property
    def key(self) -> str | None:
        """Its idempotency key."""
        return f"order{self.number}" if self.keyed else None

    @property
    def payload(self) -> dict[str, Any]:
        """A signal's: that of no other."""
        return {"n": self.number, "pad": "x" * (2_000 if self.big else 0)}


def orders(rng: random.Random, *, within: float) -> list[Order]:
    """What operators do in a schedule; some of it comes from two of them."""
    found: list[Order] = []
    for number in range(rng.choice((0, 1, 2, 4, 8))):
        order = Order(
            at=rng.random() * within,
            kind=rng.choice(KINDS),
            number=number,
            which=rng.random(),
            keyed=rng.random() < 0.5,
            name=rng.choice(SIGNALS),
            big=rng.random() < 0.2,
        )
        found.append(order)
        repeatable = order.keyed or order.kind not in (Operation.SIGNAL, Operation.FORK)
        if repeatable and rng.random() < 0.3:
            found.append(replace(order, at=order.at + rng.choice((0.0, 0.01, 0.1, 30.0))))
    return found


async def operator(simulation: Simulation, api: Api, order: Order) -> None:
    """Makes one move, repeats what was not answered where that is safe."""
    await asyncio.sleep(order.at)
    key = _chosen(simulation, order)
    if key is not None:
        await _make(simulation, api, order, key)


async def closing(simulation: Simulation, api: Api) -> None:
    """When faults are over: resumes whatever is paused, and gives every wait the signal that nobody gave it."""
    number = 1_000
    while True:
        for key, run in list(simulation.audit.latest.items()):
            if run.status is Status.PAUSED:
                number += 1
                await _make(simulation, api, Order(at=0, kind=Operation.RESUME, number=number), key)
            for name in _endless_waits(simulation, run):
                number += 1
                order = Order(at=0, kind=Operation.SIGNAL, number=number, name=name, keyed=True)
                await _make(simulation, api, order, key)
        await asyncio.sleep(CLOSING_SECONDS)


def _endless_waits(simulation: Simulation, run: Run) -> list[str]:
    """The signals without which the run would wait for its timeout."""
    if run.terminal or run.cancel_requested:
        return []
    steps = simulation.workflow_of(run).steps
    waiting = [
        signal_of(steps[name])
        for name, state in run.steps.items()
        if state.status is StepStatus.WAITING and not state.due_at
    ]
    return [name for name in waiting if name is not None]


def _chosen(simulation: Simulation, order: Order) -> RunKey | None:
    """A run, mostly one for which the move is possible."""
    rows = simulation.audit.latest
    fit = [key for key, run in rows.items() if run.status in OPERATIONS[order.kind]]
    among = fit or list(rows)
    return among[int(order.which * len(among))] if among else None


async def _make(simulation: Simulation, api: Api, order: Order, key: RunKey) -> None:
    audit = simulation.audit
    for attempt in range(6):
        audit.moves.asked += 1
        node, task = api.ask(lambda desk: _carry_out(desk, order, key))
        await asyncio.wait({task}, timeout=ANSWER_SECONDS)
        if task.done() and not task.cancelled() and not node.dead:
            match task.exception():
                case None:
                    answer = task.result()
                    if isinstance(answer, Submitted):
                        audit.moves.forked(key, order.key, answer.run)
                    elif answer is not None:
                        audit.moves.answered(order, answer)
                    return
                case QueueFull() | InfrastructureError():
                    pass
                case CallerError() | LimitExceeded() as error:
                    simulation.note("operator", f"{order.kind} {key.run_id[:6]}", f"refused: {error!r}"[:80])
                    return
                case error:
                    audit.fail("a move fails as declared", repr(error))
        if order.kind in (Operation.SIGNAL, Operation.REDRIVE, Operation.FORK) and not order.keyed:
            return
        await asyncio.sleep(2.0**attempt)


async def _carry_out(desk: Desk, order: Order, key: RunKey) -> Done | Submitted | None:
    """What the API does with the request."""
    services = desk.node.services
    run = await services.runs.get(key, now=services.clock.now())
    if run is None:
        return None
    if order.kind is Operation.FORK:
        steps = list(desk.node.simulation.workflow_of(run).steps)
        from_step = steps[int(order.which * 7919) % len(steps)]
        content = hashlib.sha256(from_step.encode()).hexdigest()
        desk.node.simulation.audit.admissions.submits += 1
        asked = Fork(
            from_step=from_step, version=None, input=None, new_input=False, request_hash=content, key=order.key
        )
        return await desk.forker.fork(run, asked)
    return await desk.control.carry_out(run, await _move(desk, order, run))


async def _move(desk: Desk, order: Order, run: Run) -> OperatorRequest:
    by = "Ada"
    keyed = None if order.key is None else Keyed(key=f"{order.kind}/{order.key}", content=order.name)
    match order.kind:
        case Operation.CANCEL:
            return CancelAsked(by=by)
        case Operation.PAUSE:
            return PauseAsked(by=by)
        case Operation.RESUME:
            return ResumeAsked(by=by)
        case Operation.REDRIVE:
            return RedriveAsked(by=by, keyed=keyed)
        case _:
            payload: Value = order.payload
            if order.big:
                services = desk.node.services
                name = payload_key(run.tenant, run.id, run.submission, f"signals/{services.ids.token()}")
                payload = await services.blobs.put(name, dump(order.payload))
            return Signalled(by=by, name=order.name, payload=payload, keyed=keyed)
