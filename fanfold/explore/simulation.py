"""One try: a deployment in memory on virtual time, a worker that dies at a given call, and the next worker.

The API's submit, the sweeper and the state machine of distributed maps do not die. A new worker replaces a dead one at
once, without its memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from fanfold.adapters.memory import MemoryRunStore
from fanfold.engine.language.calling import OnInterrupt
from fanfold.engine.ports import Registered, RunKey
from fanfold.engine.record.messages import RESUME, QueueName
from fanfold.engine.record.run import Run, StepStatus
from fanfold.engine.rules.events import Signalled
from fanfold.engine.rules.kinds.wait_step import signal_of
from fanfold.explore.actors import WORKER, Actors
from fanfold.explore.memory import memory_services
from fanfold.explore.processes import Door, Process
from fanfold.explore.scenario import Scenario
from fanfold.explore.trace import Crash, Execution, Trace
from fanfold.service.api.control import Control
from fanfold.service.api.run_reader import whole
from fanfold.service.api.submit import Submission, Submitter
from fanfold.tasks.context import Context
from fanfold.testing.virtual_time import SeededIds, VirtualClock, loop

TENANT: Final = "explorer"
GRACE: Final = timedelta(minutes=15)
"""How long after its deadline a run may end: a lease, a sweep, a delivery, and a reserve."""

QUIET_SECONDS: Final = 150.0
"""How long messages may remain after a run's end, once for each death and once more: two leases."""

MOST_TURNS: Final = 200_000
"""Loop turns without passing time after which a task spins: every call to a service takes time."""


class Simulation:
    """The deployment of one try. Created and used inside one virtual loop."""

    def __init__(self, play: Scenario, crashes: Sequence[Crash]) -> None:
        self._play = play
        self.course = Trace(crashes=tuple(crashes))
        self._services, self._fan_out = memory_services(play.settings, VirtualClock(), SeededIds("services"))
        self._changed = asyncio.Event()
        self._door = Door(self.course, on_death=self._died, changed=self._changed)
        self._crew = Actors(play, self._services, self._door, self._allowed)
        self._fan_out.work = self._crew.batch
        self._signalled: set[str] = set()

    async def perform(self) -> Trace:
        """Run until the run has ended and its last message is gone."""
        loop().most_turns_at_once = MOST_TURNS
        self._play.modules.restore()
        run = await self._accepted()
        self._key = RunKey(tenant=run.tenant, run_id=run.id)
        self._door.told = run.last_seq
        helpers = [asyncio.create_task(self._crew.workers()), asyncio.create_task(self._crew.sweeper())]
        try:
            until = run.deadline + GRACE
            async with asyncio.timeout((until - self._services.clock.now()).total_seconds()):
                await self._end()
            await self._quiet()
        except TimeoutError:
            self.course.broken.append("the run did not end, nor would it have by its deadline")
        finally:
            self._door.open = False
            for task in helpers:
                task.cancel()
            await asyncio.wait(helpers)
        self.course.broken.extend(repr(task.exception()) for task in helpers if not task.cancelled())
        self.course.run = await whole(self._services, self._row())
        self.course.seconds = self._services.clock.monotonic()
        return self.course

    # --- the run --------------------------------------------------------------------------------

    async def _accepted(self) -> Run:
        services, play = self._services, self._play
        await services.catalog.register(
            TENANT,
            Registered(
                name=play.workflow.name,
                version=play.workflow.version,
                document=play.document,
                created_at=services.clock.now(),
            ),
        )
        submitter = Submitter(services, self._crew.workflows())
        asked = Submission(tenant=TENANT, workflow=play.workflow.name, input=play.input, request_hash="0" * 64)
        return (await submitter.submit(asked)).run

    def _row(self) -> Run:
        assert isinstance(self._services.runs, MemoryRunStore)
        return self._services.runs.rows[self._key]

    async def _end(self) -> None:
        while not (run := self._row()).terminal:
            self._changed.clear()
            await self._signal(run)
            await self._changed.wait()

    async def _quiet(self) -> None:
        """Wait until the class's queues are empty, or until it is clear that they stay non-empty."""
        clock = self._services.clock
        until = clock.monotonic() + QUIET_SECONDS * (1 + len(self.course.crashes))
        while clock.monotonic() < until:
            depths = [await self._services.queue.depth(queue) for queue in self._queues()]
            if not any(depth.visible + depth.in_flight + depth.delayed for depth in depths):
                return
            await clock.sleep(1)
        # A delayed wake is harmless. A message that is in flight for so long is not.
        if any(depth.visible + depth.in_flight for depth in depths):
            self.course.broken.append("a message of the ended run was not taken off its queue")

    def _queues(self) -> list[QueueName]:
        class_name = self._play.workflow.class_name
        roles = (*self._play.settings.classes[class_name].lanes, RESUME)
        return [QueueName(class_name=class_name, role=role) for role in roles]

    async def _signal(self, run: Run) -> None:
        """Send the signal of an open wait, once."""
        for name, state in run.steps.items():
            signal = signal_of(self._play.workflow.steps[name])
            if (
                state.status is StepStatus.WAITING
                and signal is not None
                and signal in self._play.signals
                and name not in self._signalled
            ):
                self._signalled.add(name)
                move = Signalled(by="explorer", name=signal, payload=self._play.signals[signal])
                await Control(self._services, self._crew.workflows()).carry_out(run, move)

    # --- what is watched ------------------------------------------------------------------------

    def _died(self, process: Process) -> None:
        """Remember the steps that a dead worker had begun and that may begin only once."""
        if process.kind != WORKER:
            return
        for name, state in self._row().steps.items():
            if state.status is not StepStatus.RUNNING:
                continue
            if self._play.workflow.calling(name).retry.on_interrupt is OnInterrupt.FAIL:
                self.course.cut_off.setdefault(name, len(self.course.executions))

    def _allowed(self, ctx: Context) -> str | None:
        """Whether the record has this attempt as begun and not ended."""
        run, workflow = self._row(), self._play.workflow
        state = run.steps.get(ctx.step)
        sealed = run.sealed.status(workflow.position(ctx.step))
        if sealed is not None or (state is not None and state.settled):
            return "was executed after its recorded end"
        if ctx.index is not None:
            return None  # items are not in the record one by one
        if state is None or state.status is not StepStatus.RUNNING or state.attempts != ctx.attempt:
            return f"was begun as attempt {ctx.attempt} before that was recorded"
        if any(self._same(execution, ctx) for execution in self.course.executions):
            return f"was executed twice in attempt {ctx.attempt}"
        return None

    @staticmethod
    def _same(execution: Execution, ctx: Context) -> bool:
        return (execution.step, execution.index, execution.attempt) == (ctx.step, ctx.index, ctx.attempt)
