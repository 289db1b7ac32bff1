"""Operators and a sweeper for a world in memory: what the API and its schedule would do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from functions.engine.errors import CallerError, InfrastructureError
from functions.engine.events import CancelAsked, Move, PauseAsked, RedriveAsked, ResumeAsked, Signalled
from functions.engine.message import Envelope
from functions.runtime.api.control import Control, Done
from functions.runtime.sweeper.settle import Settler
from functions.runtime.sweeper.sweep import sweep
from functions.runtime.terms import terms_of
from functions.runtime.wiring import Services
from functions.runtime.workflows import WorkflowCache
from tests.support.builders import a_token
from tests.support.world import World

CANCEL, PAUSE, RESUME = CancelAsked(by="Ada"), PauseAsked(by="Ada"), ResumeAsked(by="Ada")
REDRIVE = RedriveAsked(by="Ada")


def a_signal(name: str = "approve", payload: Any = None) -> Signalled:
    """A signal of Ada's."""
    return Signalled(by="Ada", name=name, payload=payload)


async def operate(world: World, envelope: Envelope, move: Move, *, services: Services | None = None) -> Done:
    """Carry out a move as the API does."""
    used = services or world.services
    control = Control(used, WorkflowCache(used.catalog, world.settings.classes))
    return await control.carry_out(await world.row(envelope), move)


async def tried(world: World, envelope: Envelope, move: Move) -> str:
    """Carry out a move; what came of it: `done`, `so before`, or the name of the error."""
    try:
        done = await operate(world, envelope, move)
    except (CallerError, InfrastructureError) as error:
        return type(error).__name__
    return "done" if done.changed else "so before"


@asynccontextmanager
async def sweeping(world: World, *, services: Services | None = None) -> AsyncIterator[None]:
    """A sweeper each minute for the length of the block."""
    used = services or world.services
    await world.services.tokens.put(a_token())
    terms = terms_of(used.settings)
    settle = Settler(used, WorkflowCache(used.catalog, used.settings.classes), terms)

    async def passes() -> None:
        while True:
            await sweep(used, terms, now=used.clock.now(), settle=settle)
            await asyncio.sleep(60)

    task = asyncio.create_task(passes())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
