"""Clients that submit many runs in one call, and repeat the whole call while some of it was not accepted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fanfold.engine.errors import InfrastructureError, InvalidDocument, KeyReused, LaneDenied, QueueFull
from fanfold.service.api.batch_submit import Outcome, submit_many
from fanfold.service.api.submit import Submitted
from tests.simulation.clients import ANSWER_SECONDS, Api, Wish, answered

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

OFTEN = 0.25
"""Of the schedules, so many have a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Wishes of one tenant that are submitted together, at this time; of a keyed one, item i has the key `key/i`."""

    at: float
    keyed: bool
    wishes: Sequence[Wish]


def batched(rng: random.Random, wishes: Sequence[Wish]) -> tuple[list[Wish], list[Batch]]:
    """Some of a schedule's wishes made a batch: now and then sent by two clients, or one of its runs sent alone too."""
    tenants = sorted({wish.tenant for wish in wishes})
    if not tenants or rng.random() >= OFTEN:
        return list(wishes), []
    tenant, keyed = rng.choice(tenants), rng.random() < 0.7
    # Of wishes with one key the first: the others come alone.
    first = {wish.key or wish.marker: wish for wish in reversed(wishes) if wish.tenant == tenant}
    chosen = sorted(first.values(), key=lambda wish: wish.marker)
    items = [replace(wish, key=f"b/{i}" if keyed else None) for i, wish in enumerate(chosen)]
    batch = Batch(at=min(wish.at for wish in chosen), keyed=keyed, wishes=items)
    alone = [wish for wish in wishes if wish not in chosen]
    found = [batch]
    if keyed and rng.random() < 0.4:
        found.append(replace(batch, at=batch.at + rng.choice((0.0, 0.01, 30.0))))
    if keyed and rng.random() < 0.4:
        item = rng.choice(items)
        marker = item.marker if rng.random() < 0.5 else f"{item.marker}b"
        alone.append(replace(item, at=batch.at + rng.choice((0.0, 0.01, 30.0)), marker=marker))
    return alone, found


async def submitter(simulation: Simulation, api: Api, batch: Batch) -> None:
    """Sends the batch until each of its runs has an answer that counts, or for some minutes."""
    await asyncio.sleep(batch.at)
    asked = [wish.submission() for wish in batch.wishes]
    for attempt in range(8):
        simulation.audit.admissions.submits += len(asked)
        node, task = api.ask(lambda desk: submit_many(desk.submitter, asked))
        await asyncio.wait({task}, timeout=ANSWER_SECONDS)
        again = True
        if task.done() and not task.cancelled() and not node.dead:
            match task.exception():
                case None:
                    results = zip(batch.wishes, task.result(), strict=True)
                    missing = [_told(simulation, wish, outcome) for wish, outcome in results]
                    again = any(missing)
                case InfrastructureError():
                    pass
                case error:
                    simulation.audit.fail("a batch fails as declared", repr(error))
        if not again or not batch.keyed:
            return  # without a key it can't know what was accepted, so it does not repeat
        await asyncio.sleep(float(2**attempt))


def _told(simulation: Simulation, wish: Wish, outcome: Outcome) -> bool:
    """Whether one run of a batch has to be sent again."""
    match outcome:
        case Submitted():
            answered(simulation, wish, outcome)
            return False
        case KeyReused():
            simulation.audit.hold(wish.key is not None, "a key is reused only where there is one", wish)
            return False
        case QueueFull() | InfrastructureError():
            return True
        case InvalidDocument() | LaneDenied() if simulation.deployment.releases:
            return True  # its class or lane is not deployed at the moment
        case error:
            simulation.audit.fail("a run of a batch fails as declared", repr(error))
            return False
