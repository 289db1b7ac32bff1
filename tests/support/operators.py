"""Operators and a sweeper for a world in memory: what the API and its schedule would do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fanfold.engine.errors import CallerError, InfrastructureError
from fanfold.engine.record.messages import Envelope
from fanfold.engine.rules.events import CancelAsked, OperatorRequest, PauseAsked, RedriveAsked, ResumeAsked, Signalled
from fanfold.service.api.control import Control, Done
from fanfold.service.engine_limits import engine_limits
from fanfold.service.sweeper.expire_queued import QueueExpiry
from fanfold.service.sweeper.sweep import sweep
from fanfold.service.wiring import Services
from fanfold.service.workflow_cache import WorkflowCache
from tests.support.builders import a_token
from tests.support.world import World

CANCEL, PAUSE, RESUME = CancelAsked(by="Ada"), PauseAsked(by="Ada"), ResumeAsked(by="Ada")
REDRIVE = RedriveAsked(by="Ada")


def a_signal(name: str = "approve", payload: Any = None) -> Signalled:
    """A signal of Ada's."""
    return Signalled(by="Ada", name=name, payload=payload)


async def operate(world: World, envelope: Envelope, move: OperatorRequest, *, services: Services | None = None) -> Done:
    """Carry out a move as the API does."""
    used = services or world.services
    control = Control(used, WorkflowCache(used.catalog, world.settings.classes))
    return await control.carry_out(await world.row(envelope), move)


async def tried(world: World, envelope: Envelope, move: OperatorRequest) -> str:
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
    limits = engine_limits(used.settings)
    settle = QueueExpiry(used, WorkflowCache(used.catalog, used.settings.classes), limits)

    async def passes() -> None:
        while True:
            await sweep(used, limits, now=used.clock.now(), expire=settle)
            await asyncio.sleep(60)

    task = asyncio.create_task(passes())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
