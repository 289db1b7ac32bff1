"""The world of one schedule: services, processes, clients, bad luck, played to the end of every run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

from fanfold.adapters.memory import MemoryCatalog, MemorySeats, MemorySecrets, MemorySweeperState, MemoryTokens
from fanfold.engine.language.document_check import check
from fanfold.engine.language.workflow import Workflow, version_of
from fanfold.engine.ports import Registered, RunKey, Token
from fanfold.engine.record.messages import RESUME, QueueName
from fanfold.engine.record.run import Run
from fanfold.service.wiring import Services
from tests.simulation import fleet
from tests.simulation.audit import Audit
from tests.simulation.batches import submitter
from tests.simulation.clients import Api, client
from tests.simulation.deployment import MAX_STEP_SECONDS, Deployment
from tests.simulation.elsewhere import MapRecords, StateMachine
from tests.simulation.fate import Fate
from tests.simulation.loop import SimulationLoop
from tests.simulation.nodes import Node
from tests.simulation.operators import closing, operator
from tests.simulation.outcome import Failure, Line, Played
from tests.simulation.perils import Perils
from tests.simulation.releases import SIDE, Release, Rollout, queues_of
from tests.simulation.stores import Blobs, Queue, Slots, Store
from tests.simulation.verdict import judge
from tests.simulation.workload import CURRENT, Ledger
from tests.support.clock import START, SeededIds
from tests.support.virtual import VirtualClock
from tests.support.world import codec

ENDS_WITHIN = 7_200.0
"""Virtual seconds after the last fault within which every run must have ended."""

STUCK_TURNS = 400_000
"""Turns of the loop no schedule comes near: something spins."""

LUCKS = 12
"""How often in a schedule something may strike between calls."""


class Simulation:
    """The world of one schedule. Must be made inside the simulation's loop."""

    def __init__(self, fate: Fate, deployment: Deployment) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulationLoop)
        self.loop = loop
        self.fate = fate
        self.deployment = deployment
        self.rollout = Rollout(self, deployment.releases)
        self.calm_at = max(fate.calm_at, self.rollout.done_at)
        self.context = copy_context()
        self.clock = VirtualClock()
        self.audit = Audit(self)
        self.ledger = Ledger()
        self.perils = Perils(self)
        self.store = Store(self, codec() if deployment.encoded else None, lag=deployment.lag)
        self.queue = Queue(self, max_receives=deployment.max_receives)
        first = deployment.settings
        limits = {name: of.max_queue_depth for name, of in first.classes.items()}
        self.slots = Slots(self, limits, hour_seconds=first.slot_hour_seconds)
        self.blobs = Blobs(self)
        self.machine = StateMachine(self, self.blobs)
        self.workflows: dict[tuple[str, str], Workflow] = {}
        self.services = Services(
            settings=first,
            runs=self.store,
            queue=self.queue,
            slots=self.slots,
            blobs=self.blobs,
            catalog=MemoryCatalog(),
            tokens=MemoryTokens(),
            sweeper_state=MemorySweeperState(),
            secrets=MemorySecrets(),
            seats=MemorySeats(first.max_watchers),
            map_records=MapRecords(self),
            fan_out=self.machine,
            clock=self.clock,
            ids=SeededIds(fate.seed),
        )
        self.nodes: dict[str, Node] = {}
        self.author = Node(self, "operator", 0)
        self.returned: dict[RunKey, str] = {}
        self.failure: Failure | None = None
        self.trace: list[Line] = []
        self._broken = asyncio.Event()
        self._kinds: dict[str, int] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- what the parts need --------------------------------------------------------------------

    @property
    def deaths(self) -> int:
        """How many processes died."""
        return sum(node.dead for node in self.nodes.values())

    def workflow_of(self, run: Run) -> Workflow:
        """What the run does."""
        return self.workflows[run.tenant, run.workflow]

    def node(self, kind: str, release: Release | None = None) -> Node:
        """A new process, deployed with what is there at the moment, or with this release."""
        self._kinds[kind] = self._kinds.get(kind, 0) + 1
        node = Node(self, kind, self._kinds[kind], release)
        self.nodes[node.name] = node
        return node

    def note(self, who: str, what: str, detail: object) -> None:
        """A line of the trace."""
        self.trace.append((self.loop.time(), who, what, detail))

    def later(self, seconds: float, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Done by a service on its own, whatever became of the caller."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            await call()

        self.go(wait())

    def go(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Something that belongs to no process."""
        task = asyncio.create_task(coroutine, context=self.context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self.failure is None:
            raise error

    def break_off(self, what: str, detail: str) -> None:
        """The first broken promise ends the schedule."""
        if self.failure is None:
            self.failure = Failure(
                seed=self.fate.seed, what=what, detail=detail, struck=tuple(self.fate.struck), trace=tuple(self.trace)
            )
            self._broken.set()

    # --- the course -----------------------------------------------------------------------------

    async def play(self) -> Played:
        """To the end of every run, or to the first broken promise."""
        self.context.run(CURRENT.set, self)
        await self._deploy()
        end = asyncio.create_task(self._course(), context=self.context)
        broken = asyncio.create_task(self._broken.wait(), context=self.context)
        await asyncio.wait({end, broken}, return_when=asyncio.FIRST_COMPLETED)
        if end.done() and self.failure is None:
            end.result()
        seconds, turns = self.loop.time(), self.loop.turns
        await self._clear_away(end, broken)
        return Played(
            seed=self.fate.seed,
            failure=self.failure,
            faults=len(self.fate.struck),
            runs=len(self.audit.latest),
            writes=sum(run.version for run in self.audit.latest.values()),
            virtual_seconds=seconds,
            turns=turns,
        )

    async def _deploy(self) -> None:
        for (tenant, name), source in self.deployment.documents.items():
            workflow = check(
                source, name=None, tasks={"sim.work"}, classes={"model": MAX_STEP_SECONDS, SIDE: MAX_STEP_SECONDS}
            )
            version = version_of(source)
            registered = Registered(name=name, version=version, document=source, created_at=START)
            await self.services.catalog.register(tenant, registered)
            self.workflows[tenant, name] = workflow
        for tenant in sorted({tenant for tenant, _ in self.workflows}):
            token = Token(id=tenant, sha256="", tenant=tenant, scopes=frozenset(), owner="", created_at=START)
            await self.services.tokens.put(token)

    async def _course(self) -> None:
        self._start_fleet()
        self.go(self._bad_luck())
        if self.deployment.steps:
            self.go(self._set_clocks())
        api = Api(self)
        # Something a client raises is a mistake of the simulation.
        await asyncio.gather(
            *(client(self, api, wish) for wish in self.deployment.wishes),
            *(submitter(self, api, batch) for batch in self.deployment.batches),
            *(operator(self, api, order) for order in self.deployment.orders),
        )
        await asyncio.sleep(max(0.0, self.calm_at - self.loop.time()))
        self.go(closing(self, api))
        await self._until(self._all_ended, "every accepted run ends")
        for key, run in self.audit.latest.items():
            judge(self.audit, run, self.workflows[key.tenant, run.workflow])
        if self.deployment.drained:
            await self._until(lambda: not len(self.queue), "no message goes round for ever")
        if self.deployment.healed:
            await self._until(lambda: not self.slots.taken, "leaked slots are healed")

    def _start_fleet(self) -> None:
        if self.deployment.lambdas:
            ever = [queue for release in self.rollout.all for queue in queues_of(release.settings)]
            best = queues_of(self.deployment.settings)[0]
            for queue in dict.fromkeys(ever):
                mapping = fleet.Mapping(self, queue, batch=1 if queue.role == RESUME else self.deployment.batch)
                for _ in range(2 if queue == best or queue.role == RESUME else 1):
                    self.go(mapping.poll())
        for number in range(self.deployment.processes):
            self.go(fleet.process_worker(self, number))
        self.go(fleet.sweeper(self))
        self.go(fleet.dead_letters(self))
        if any(SIDE in release.settings.classes for release in self.rollout.all):
            if not self.deployment.lambdas:
                self.go(fleet.process_worker(self, self.deployment.processes, SIDE))
            self.go(fleet.dead_letters(self, SIDE))
        if self.deployment.releases:
            self.go(self.rollout.go())

    async def _until(self, true: Callable[[], bool], what: str) -> None:
        limit = self.loop.time() + ENDS_WITHIN
        while not true():
            await asyncio.sleep(10)
            self.audit.liveness.look()
            if self.loop.time() > limit or self.loop.turns > STUCK_TURNS:
                rows = [f"{run.id[:6]} {run.status}" for run in self.audit.latest.values() if not run.terminal]
                self.break_off(what, f"after {limit:.0f} s: {rows}, {len(self.queue)} messages")
                return

    def _all_ended(self) -> bool:
        lost = self.audit.purged - set(self.returned) - set(self.audit.latest)
        expected = (set(self.audit.admissions.accepted) | set(self.returned)) - lost
        return all(key in self.audit.latest and self.audit.latest[key].terminal for key in expected)

    async def _bad_luck(self) -> None:
        """What strikes between calls: deaths, freezes, a purge."""
        if not self.fate.faults:
            return
        step = self.fate.calm_at / LUCKS
        for _ in range(LUCKS):
            await asyncio.sleep(step)
            at = self.loop.time()
            living = [node for name, node in self.nodes.items() if not node.dead and node.tasks and name != "operator0"]
            if living and (amount := self.fate.strikes("luck.death", 0.12, at=at)) is not None:
                living[int(amount * len(living))].kill("by bad luck")
            elif living and (amount := self.fate.strikes("luck.freeze", 0.12, at=at)) is not None:
                living[int(amount * len(living))].freeze(20 + amount * 200)
            elif (amount := self.fate.strikes("luck.purge", 0.03, at=at)) is not None:
                lanes = self.deployment.lanes
                # The first half of chance is the lanes', the other the resume queue's.
                role = lanes[int(amount * 2 * len(lanes))] if amount < 0.5 else RESUME
                self.purge(QueueName(class_name="model", role=role))
            elif self.fate.strikes("luck.abort", 0.1, at=at) is not None:
                await self.machine.abort()

    async def _set_clocks(self) -> None:
        """Clocks step while their processes work. Once faults are over none is off by more than is granted."""
        margin = self.rollout.least_skew_seconds
        for at, whose, far in self.deployment.steps:
            await asyncio.sleep(max(0.0, at - self.loop.time()))
            living = [node for node in self.nodes.values() if not node.dead and node.tasks]
            if living:
                living[int(whose * len(living))].step_clock(far * margin)
        await asyncio.sleep(max(0.0, self.fate.calm_at - self.loop.time()))
        for node in self.nodes.values():
            if abs(node.skew) > margin / 2:
                node.step_clock(0.0)

    def purge(self, name: QueueName) -> None:
        """Somebody empties a queue."""
        gone = self.queue.purge(name)
        self.note("operator", "purges", f"{name}: {len(gone)}")
        self.audit.purged |= {RunKey(tenant=message.tenant, run_id=message.run_id) for message in gone}

    async def _clear_away(self, *own: asyncio.Task[Any]) -> None:
        for task in own:
            task.cancel()
        for node in self.nodes.values():
            node.kill("the end")
        for _ in range(20):
            left = asyncio.all_tasks() - {asyncio.current_task()}
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1)
