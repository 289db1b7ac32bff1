"""Processes: a set of tasks, a skewed clock, and a door through which every call to a service passes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fanfold.engine.errors import InfrastructureError, LimitExceeded, Throttled, Unanswered, Unavailable
from fanfold.engine.ports import NotSent, Outgoing, QueueDepth
from fanfold.engine.record.messages import DEAD, QueueName, Received
from fanfold.service.settings import Settings
from fanfold.service.wiring import Services
from tests.simulation.fate import Fault, Plan
from tests.simulation.releases import Release, queues_of
from tests.support.clock import SeededIds
from tests.support.virtual import PROCESS, VirtualClock

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation
    from tests.simulation.stores import Queue

READS = frozenset(
    {
        ("map_records", "has"), ("map_records", "read"), ("fan_out", "going"), ("slots", "held"),
        ("runs", "get"), ("runs", "segments"), ("runs", "get_many"), ("runs", "page"), ("runs", "due"),
        ("queue", "depth"), ("slots", "load"), ("blobs", "get"), ("sweeper_state", "get"), ("tokens", "tenants"),
        ("catalog", "current"), ("catalog", "version"),
    }
)  # fmt: skip
LATE_SECONDS = 40.0
"""A write that got no answer is done at most this much later."""
SLOW_SECONDS = 8.0
FREEZE_SECONDS = 200.0
"""Longer than three leases."""


class SkewedClock(VirtualClock):
    """A process's clock: wall time is off by so much until it steps; the monotonic one never is."""

    def __init__(self, skew_seconds: float) -> None:
        self._skew = timedelta(milliseconds=round(skew_seconds * 1000))

    def now(self) -> datetime:
        return super().now() + self._skew

    def step(self, skew_seconds: float) -> None:
        """From now on wall time is off by so much."""
        self._skew = timedelta(milliseconds=round(skew_seconds * 1000))


class Node:
    """A process. Once dead it never gets an answer and never asks again; frozen, it stands still."""

    def __init__(self, simulation: Simulation, kind: str, number: int, release: Release | None = None) -> None:
        self.simulation = simulation
        self.release = simulation.rollout.of_new(f"{kind}{number}", kind) if release is None else release
        self.settings = self.release.settings
        self.kind = kind
        self.name = f"{kind}{number}"
        self.dead = False
        self.disturbed_at = -1e9
        self.thawed_at = -1e9
        self.frozen = False
        amount, _, _ = simulation.fate.chance(f"{self.name}.skew")
        margin = simulation.rollout.least_skew_seconds
        self.skew = (amount - 0.5) * margin if simulation.deployment.skewed else 0.0
        self._clock = clock = SkewedClock(self.skew)
        shared = simulation.services
        ports = {
            name: Port(self, name, getattr(shared, name))
            for name in (
                "runs",
                "queue",
                "slots",
                "blobs",
                "catalog",
                "tokens",
                "sweeper_state",
                "map_records",
                "fan_out",
            )
        }
        limits = {name: of.max_queue_depth for name, of in self.settings.classes.items()}
        slots = simulation.slots.reconfigured(limits, self.settings.slot_shards)
        ports["slots"] = Port(self, "slots", slots)
        ports["queue"] = Port(self, "queue", Reachable(simulation.queue, self.settings))
        ids = SeededIds(f"{simulation.fate.seed}/{self.name}")
        self.services: Services = replace(
            shared, settings=self.settings, clock=clock, ids=ids, clock_offset=lambda: -self.skew, **ports
        )
        self.context = copy_context()
        self.context.run(PROCESS.set, self.name)

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something in this process."""
        return asyncio.create_task(coroutine, context=self.context)

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """What it has not ended."""
        return self.simulation.loop.tasks_of(self.name)

    def disturbed(self) -> None:
        """Something went wrong with it just now that can cost it a lease."""
        self.disturbed_at = max(self.disturbed_at, self.simulation.loop.time())

    def flawed(self) -> None:
        """Its own code has let something drop: from now on it may hold what it does not work on."""
        self.disturbed_at = math.inf

    def kill(self, why: str) -> None:
        """It is gone at this moment."""
        if self.dead:
            return
        self.simulation.note(self.name, "dies", why)
        self.dead = True
        self.disturbed()
        self.simulation.loop.thaw(self.name)
        for task in sorted(self.tasks, key=hash):
            task.cancel()

    def freeze(self, seconds: float) -> None:
        """It stands still for so long."""
        if self.dead:
            return
        self.simulation.note(self.name, "freezes", f"{seconds:.0f} s")
        self.disturbed()
        self.frozen = True
        self.simulation.loop.freeze(self.name)
        self.simulation.loop.call_later(seconds, self._thaw, context=self.simulation.context)

    def _thaw(self) -> None:
        self.disturbed()
        self.thawed_at = self.simulation.loop.time()
        self.frozen = False
        self.simulation.loop.thaw(self.name)

    def step_clock(self, skew_seconds: float) -> None:
        """Its clock is set: somebody, or its time service, found that it was off, or sets it wrong."""
        self.simulation.note(self.name, "has its clock set", f"{self.skew:+.1f} → {skew_seconds:+.1f} s")
        granted = self.simulation.rollout.least_skew_seconds / 2
        if max(abs(self.skew), abs(skew_seconds)) > granted:
            self.disturbed()  # farther off than is granted: others may take what it holds
        self.skew = skew_seconds
        self._clock.step(skew_seconds)

    def must_live(self) -> None:
        """The door: a dead process gets no further."""
        if self.dead:
            raise asyncio.CancelledError


class Reachable:
    """The queues of a process's settings: it has no address of another's, and one that is deleted does not answer."""

    def __init__(self, queue: Queue, settings: Settings) -> None:
        self._queue = queue
        dead = [QueueName(class_name=name, role=DEAD) for name in settings.classes]
        self._known = frozenset([*queues_of(settings), *dead])

    def __getattr__(self, method: str) -> Any:
        function = getattr(self._queue, method)

        async def call(first: QueueName | Sequence[Received], *args: Any, **given: Any) -> Any:
            for name in [first] if isinstance(first, QueueName) else {received.queue for received in first}:
                if name not in self._known:
                    raise KeyError(name)
                if name in self._queue.deleted:
                    raise Unavailable(f"there is no queue {name}")
            return await function(first, *args, **given)

        setattr(self, method, call)
        return call


class Port:
    """A service as one process sees it, with everything that can go wrong with a call."""

    def __init__(self, node: Node, name: str, inner: Any) -> None:
        self._node = node
        self._name = name
        self._inner = inner

    async def send_many(self, queue: QueueName, messages: Sequence[Outgoing]) -> Sequence[NotSent | None]:
        """See `WorkQueue.send_many`: each message has a fate of its own, and tells it instead of raising it."""
        told: list[NotSent | None] = []
        for one in messages:
            try:
                told.append(await self.send(queue, one.message, delay_seconds=one.delay_seconds))
            except (LimitExceeded, InfrastructureError) as error:
                told.append(error)
        return told

    def __getattr__(self, method: str) -> Any:
        function = getattr(self._inner, method)
        node, read, queue = self._node, (self._name, method) in READS, self._name == "queue"
        site = f"{node.name}.{self._name}.{method}"

        async def call(*args: Any, **given: Any) -> Any:
            node.must_live()
            simulation = node.simulation
            simulation.perils.calls(node, self._name, method)
            plan = simulation.fate.plan(site, read=read, queue=queue, at=simulation.loop.time())

            async def done() -> Any:
                simulation.author = node
                return await function(*args, **given)

            if isinstance(plan, float):
                await asyncio.sleep(plan)
                node.must_live()
                result = await done()
                node.must_live()
                return result
            node.disturbed()
            simulation.note(node.name, f"{self._name}.{method}", plan.fault)
            return await self._carry_out(plan, method, done, args, given)

        setattr(self, method, call)
        return call

    async def _carry_out(
        self, plan: Plan, method: str, done: Callable[[], Any], args: tuple[Any, ...], given: dict[str, Any]
    ) -> Any:
        node, simulation = self._node, self._node.simulation
        match plan.fault:
            case Fault.THROTTLED:
                raise Throttled(plan.site)
            case Fault.DOWN:
                raise Unavailable(plan.site)
            case Fault.LOST:
                await asyncio.sleep(plan.amount * SLOW_SECONDS)
                raise Unanswered(plan.site)
            case Fault.DONE:
                await _whatever(done())
                await asyncio.sleep(plan.amount * SLOW_SECONDS)
                raise Unanswered(plan.site)
            case Fault.LATE if method != "receive":
                simulation.later(plan.amount * LATE_SECONDS, lambda: _whatever(done()))
                raise Unanswered(plan.site)
            case Fault.SLOW:
                await asyncio.sleep(plan.amount * SLOW_SECONDS)
                node.must_live()
                result = await done()
                await asyncio.sleep((1 - plan.amount) * SLOW_SECONDS / 2)
            case Fault.DIE_BEFORE:
                node.kill(f"before {plan.site}")
                raise asyncio.CancelledError
            case Fault.DIE_AFTER:
                await _whatever(done())
                node.kill(f"after {plan.site}")
                raise asyncio.CancelledError
            case Fault.FREEZE_BEFORE:
                node.freeze(plan.amount * FREEZE_SECONDS)
                await asyncio.sleep(0)
                node.must_live()
                result = await done()
            case Fault.FREEZE_AFTER:
                try:
                    result = await done()
                finally:
                    node.freeze(plan.amount * FREEZE_SECONDS)
                    await asyncio.sleep(0)
            case Fault.TWICE:
                result = await self._twice(plan, method, done, args)
            case Fault.STRAY if method == "send":
                late = min(900, given.get("delay_seconds", 0) + 1 + int(plan.amount * 60))
                result = await self._inner.send(*args, delay_seconds=late)
            case Fault.STRAY if method == "depth":
                result = QueueDepth(visible=0, in_flight=0, delayed=0)
            case Fault.STRAY if method == "receive":
                result = []
                await asyncio.sleep(1)
            case _:
                result = await done()
        node.must_live()
        return result

    async def _twice(self, plan: Plan, method: str, done: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        """Queues deliver again what was sent once, is in hand, or was deleted."""
        result = await done()
        match method:
            case "send":
                messages = [args]
            case "receive":
                messages = [(received.queue, received.message) for received in result]
            case "delete":
                messages = [(received.queue, received.message) for received in args[0]]
            case _:
                messages = []
        for queue, message in messages:
            await self._inner.send(queue, message, delay_seconds=int(plan.amount * 90))
        return result


async def _whatever(call: Coroutine[Any, Any, Any]) -> None:
    """Done, and nobody hears how it went."""
    await asyncio.gather(call, return_exceptions=True)
