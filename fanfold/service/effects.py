"""What follows a commit beside the run itself: wakes, released slots, maps. The sweeper makes up for lost ones."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import assert_never

from fanfold.engine.errors import InfrastructureError, Unanswered
from fanfold.engine.ports import Moment
from fanfold.engine.record.messages import QueueName, envelope_of
from fanfold.engine.record.run import Run
from fanfold.engine.rules.effects import ReleaseSlot, SendEnvelope, SendWake, StartMap, StopMap
from fanfold.service.maps import Maps, execution_of
from fanfold.service.retrying import Patience, insist
from fanfold.service.telemetry.reporting import Metric, count, logger
from fanfold.service.wakes import delay_until, send_wake
from fanfold.service.wiring import Services

PAUSE_SECONDS = 1.0
"""Pause between tries to return a slot that was refused."""

RELEASE_PATIENCE = Patience(pauses_seconds=(PAUSE_SECONDS,), final=lambda error: isinstance(error, Unanswered))
"""A return that got no answer may have been done; done twice it would let one run too many in (R6)."""

START_PATIENCE = Patience(pauses_seconds=(0.2, 1.0, 2.0), budget_seconds=3.0)
START_AGAIN = timedelta(seconds=30)
"""When Step Functions refuses a map (300 starts a second are its default quota): pauses, then somebody looks again."""

Following = SendWake | ReleaseSlot | StartMap | StopMap | SendEnvelope
"""Effects that are carried out beside the run."""


class EffectRunner:
    """The side effects of one run's commits, performed beside it and awaited at its end."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._maps = Maps(services)
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, run: Run, effect: Following, *, committed: Moment) -> None:
        """Begin the effect of a commit, made at `committed` or a little later."""
        task = asyncio.create_task(self._carry_out(run, effect, committed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def done(self) -> None:
        """Wait until all are through, or given up because the caller is: none outlives the run's loop."""
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
        except asyncio.CancelledError:
            self.abandon()
            if self._tasks:
                await asyncio.wait(self._tasks)
            raise

    async def settled(self, within_seconds: float) -> None:
        """Wait until all are through, but no longer than this."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_seconds)

    def abandon(self) -> None:
        """Give up what is not through: there is no time for it."""
        for task in self._tasks:
            task.cancel()

    async def _carry_out(self, run: Run, effect: Following, committed: Moment) -> None:
        """Whatever goes wrong is said here, for nobody asks this task. The record makes up for it."""
        try:
            match effect:
                case SendWake():
                    await self._send_wake(run, effect)
                case ReleaseSlot():
                    await self._return(run, effect, committed)
                case StartMap():
                    await self._start(run, effect)
                case StopMap():
                    await self._stop(run, effect)
                case SendEnvelope():
                    await self._send(run)
                case _:
                    assert_never(effect)
        except Exception:
            count(Metric.EFFECTS_FAILED)
            facts = {"run_id": run.id, "effect": type(effect).__name__}
            logger().exception("an effect of a commit failed; the sweeper repairs it", extra=facts)

    async def _send_wake(self, run: Run, effect: SendWake, *, map_step: str | None = None) -> None:
        try:
            await send_wake(self._services, run, effect.at, map_step=map_step)
        except InfrastructureError as error:
            count(Metric.EFFECTS_FAILED)
            logger().warning(
                "a wake was not sent; the sweeper sends another", extra={"run_id": run.id, "error": str(error)}
            )

    async def _send(self, run: Run) -> None:
        try:
            queue = QueueName(class_name=run.class_name, role=run.lane)
            delay = delay_until(run.not_before, self._services.clock.now())
            await self._services.queue.send(queue, envelope_of(run), delay_seconds=delay)
        except InfrastructureError as error:
            count(Metric.EFFECTS_FAILED)
            logger().warning(
                "an envelope was not sent; the sweeper sends another", extra={"run_id": run.id, "error": str(error)}
            )

    async def _start(self, run: Run, effect: StartMap) -> None:
        try:
            return await insist(self._services.clock, lambda: self._maps.start(run, effect.step), START_PATIENCE)
        except InfrastructureError as error:
            why = str(error)
        count(Metric.EFFECTS_FAILED)
        facts = {"run_id": run.id, "step": effect.step, "error": why}
        logger().warning("a distributed map was not started; it is tried again in half a minute", extra=facts)
        return await self._send_wake(run, SendWake(at=self._services.clock.now() + START_AGAIN), map_step=effect.step)

    async def _stop(self, run: Run, effect: StopMap) -> None:
        try:
            await self._services.fan_out.stop(execution_of(run, effect.step))
        except InfrastructureError as error:
            count(Metric.EFFECTS_FAILED)
            facts = {"run_id": run.id, "step": effect.step, "error": str(error)}
            logger().warning("a distributed map was not stopped; its batches find the run ended", extra=facts)

    async def _return(self, run: Run, effect: ReleaseSlot, committed: Moment) -> None:
        services, window = self._services, self._services.settings.slot_return_seconds

        def in_time() -> bool:
            # By both clocks since the commit, and asked again last before the call: the process may have been frozen at
            # any moment, and a monotonic clock need not go on in a frozen one. Slot repair relies on it (R6).
            return committed.within(window, services.clock)

        async def release() -> None:
            if not in_time():
                raise Unanswered("its commit was known too late")
            await services.slots.give_back(effect.class_name, effect.slot, in_time=in_time)

        try:
            return await insist(services.clock, release, RELEASE_PATIENCE)
        except InfrastructureError as error:
            why = str(error)
        count(Metric.SLOTS_LEAKED)
        return logger().warning(
            "a queue slot was not released; the sweeper repairs it", extra={"run_id": run.id, "error": why}
        )
