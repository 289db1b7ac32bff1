"""Keeps messages in hand invisible for as long as they are worked on, and no longer than a lease past a death (R5)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from types import TracebackType

from fanfold.engine.errors import InfrastructureError
from fanfold.engine.record.messages import Received
from fanfold.service.settings import Settings
from fanfold.service.telemetry.reporting import logger
from fanfold.service.wiring import Services


def visibility_seconds(settings: Settings) -> int:
    """How long a message in hand stays invisible: its run's lease, and the clocks' skew others grant it."""
    return math.ceil(settings.lease_seconds + settings.clock_skew_seconds) + 1


class VisibilityExtender:
    """Hides its messages on entry (where they do not come hidden), and again at every third of a lease."""

    def __init__(self, services: Services, messages: Sequence[Received] = (), *, hidden: bool = False) -> None:
        self._services = services
        self._held = {message.receipt: message for message in messages}
        self._hidden = hidden
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def keep(self, messages: Iterable[Received]) -> None:
        """Take charge of messages just received."""
        self._held |= {message.receipt: message for message in messages}

    def release(self, messages: Iterable[Received]) -> None:
        """Messages that are no longer in hand."""
        for message in messages:
            self._held.pop(message.receipt, None)

    async def __aenter__(self) -> VisibilityExtender:
        self._task = asyncio.create_task(self._keep_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not by cancelling: a call in flight would outlive the invocation in its thread.
        self._stop.set()
        if self._task is not None:
            await self._task

    async def _keep_on(self) -> None:
        if not self._hidden:
            await self._hide()
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(self._services.settings.lease_seconds / 3):
                    await self._stop.wait()
            except TimeoutError:
                await self._hide()

    async def _hide(self) -> None:
        if not self._held:
            return
        try:
            await self._services.queue.hide(
                list(self._held.values()), seconds=visibility_seconds(self._services.settings)
            )
        except InfrastructureError as error:
            # The run's lease stands; a second delivery is handed back (R5).
            logger().warning("messages were not kept invisible", extra={"error": repr(error)})
        except Exception:  # a bug here must not end what the messages' runs are at
            logger().exception("messages could not be kept invisible")
