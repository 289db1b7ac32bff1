"""The wakes that a pass sends: for waiting runs that are due, and for runs whose worker died (R4, R14)."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from fanfold.engine.ports import DueKey, RunKey, WorkQueue
from fanfold.engine.record.messages import RESUME, Message, QueueName, Wake
from fanfold.engine.record.run import Run, Status
from fanfold.service.run_reads import legible
from fanfold.service.sweeper.active_scan import MAX_READ
from fanfold.service.sweeper.containment import kept, remembered
from fanfold.service.sweeper.wake_selection import SentWakes, WakeAllowance, choose
from fanfold.service.telemetry.reporting import logger
from fanfold.service.wiring import Services

AHEAD = timedelta(seconds=150)
"""How far ahead a pass reads the due index: two and a half passes, so that one missed pass delays no run (R4)."""

PASS_SECONDS = 60
"""The sweeper's period. Wakes for overdue runs are spread over it."""

SENDERS = 16
"""Concurrent sends."""


_REPAIRS = {
    "rescued": "a wake was sent for a run whose worker died",
    "resent": "a queued run's envelope was sent again",
}
"""The log line of each kind of repair, by its counter."""


class Outbox:
    """Sends the messages of a pass, a few at a time, and counts them in `done`."""

    def __init__(self, queue: WorkQueue, done: Counter[str]) -> None:
        self._queue = queue
        self._done = done
        self.few = asyncio.Semaphore(SENDERS)

    async def send(self, counter: str, run: Run, queue: QueueName, message: Message, *, delay_seconds: int = 0) -> bool:
        """Send a message. Returns whether it was sent; the next pass repeats a send that failed."""
        try:
            async with self.few:
                await self._queue.send(queue, message, delay_seconds=delay_seconds)
        except Exception as error:  # also a message that is over a limit
            self.failed(run, error)
            return False
        self._done[counter] += 1
        if line := _REPAIRS.get(counter):
            logger().info(line, extra={"run_id": run.id})
        return True

    def failed(self, run: Run, error: Exception) -> None:
        """Count and log an error about a run."""
        self._done["failed"] += 1
        logger().warning("the sweep failed for a run", extra={"run_id": run.id, "error": repr(error)})


@dataclass(slots=True, kw_only=True)
class Backlog:
    """The due runs of a class in a pass.

    known: a wake was sent in an earlier pass. fresh: none was. tried: chosen in this pass. woken: the fresh ones for
    which a wake was sent.
    """

    memory: SentWakes
    known: Sequence[DueKey]
    fresh: Sequence[DueKey]
    tried: set[DueKey] = field(default_factory=set)
    woken: list[DueKey] = field(default_factory=list)


class Wakes:
    """The wakes of a pass: for each class at most `sweep_wakes` less the messages in its `resume` queue, oldest first.

    overdue_since: when the first waiting run of each class is due, by the index. asked: the classes whose index was
    read.
    """

    def __init__(
        self, services: Services, outbox: Outbox, now: datetime, done: Counter[str], errors: list[Exception]
    ) -> None:
        self._services = services
        self._errors = errors
        self._most = services.settings.sweep_wakes
        self._outbox = outbox
        self._now = now
        self._done = done
        # What each class may take at the beginning of the pass, and how many wakes it got since.
        self._allowances: dict[str, WakeAllowance] = {}
        self._sent: Counter[str] = Counter()
        self._backlogs: dict[str, Backlog] = {}
        self.overdue_since: dict[str, datetime] = {}
        self.asked: set[str] = set()

    async def measure(self) -> None:
        """Find out how many wakes each class may get. Before that no class gets any."""
        for name in self._services.settings.classes:
            with kept(self._errors):
                depth = await self._services.queue.depth(QueueName(class_name=name, role=RESUME))
                self._allowances[name] = WakeAllowance.of(depth, most=self._most)

    async def wake_due(self) -> None:
        """Send wakes for runs that are due now or soon and have no wake yet.

        They get half of what the class may take. The other half is for runs whose worker died; `wake_more_due` uses
        what those leave.
        """
        for class_name in self._allowances:
            with kept(self._errors):
                # So many runs may have a wake in the queue, and as many may get one.
                keys = await self._services.runs.due(class_name, self._now + AHEAD, limit=2 * self._most)
                self.asked.add(class_name)
                if keys:
                    self.overdue_since[class_name] = keys[0].due_at
                memory = await remembered(
                    self._services.sweeper_state, _state_name(class_name), SentWakes.from_json, SentWakes()
                )
                known = [key for key in keys if memory.knows(_key(key), key.due_at)]
                fresh = [key for key in keys if not memory.knows(_key(key), key.due_at)]
                self._backlogs[class_name] = backlog = Backlog(memory=memory, known=known, fresh=fresh)
                allowance = self._allowance(class_name)
                await self._wake_some(class_name, backlog, replace(allowance, allowed=(allowance.allowed + 1) // 2))

    async def wake_more_due(self) -> None:
        """Send wakes for due runs that `wake_due` left out."""
        for class_name, backlog in self._backlogs.items():
            with kept(self._errors):
                await self._wake_some(class_name, backlog, self._allowance(class_name))

    async def _wake_some(self, class_name: str, backlog: Backlog, allowance: WakeAllowance) -> None:
        late = [key for key in backlog.known if key.due_at <= self._now and key not in backlog.tried]
        fresh = [key for key in backlog.fresh if key not in backlog.tried]
        if not (late or fresh):
            return
        chosen = choose(late, fresh, allowance)
        backlog.tried.update(chosen.lost, chosen.fresh)
        before = self._done["wakes_sent"]
        for key in await self._wake_all(chosen.lost):
            logger().info("a lost wake of a due run was sent again", extra={"run_id": key.run_id})
        self._done["wakes_lost"] += self._done["wakes_sent"] - before
        backlog.woken += await self._wake_all(chosen.fresh)
        after = SentWakes.of((_key(key), key.due_at) for key in [*backlog.known, *backlog.woken])
        if after != backlog.memory:
            await self._services.sweeper_state.put(_state_name(class_name), after.to_json())
            backlog.memory = after

    async def wake_abandoned(self, abandoned: Sequence[Run]) -> None:
        """Send wakes for runs whose worker died, as many as `wake_due` has left."""
        name = "sweep.rescued"
        memory = await remembered(self._services.sweeper_state, name, SentWakes.from_json, SentWakes())
        woken: list[Run] = []
        for class_name in self._allowances:
            runs = [run for run in abandoned if run.class_name == class_name]
            known = [run for run in runs if memory.knows(_key_of(run), _since(run))]
            fresh = [run for run in runs if not memory.knows(_key_of(run), _since(run))]
            allowance = self._allowance(class_name)
            chosen = choose(known, fresh, allowance)
            await self._send("rescued", chosen.lost, [self._now] * len(chosen.lost))
            sent = await self._send("rescued", chosen.fresh, [self._now] * len(chosen.fresh))
            woken += [*known, *sent]
        after = SentWakes.of((_key_of(run), _since(run)) for run in woken[: 2 * self._most])
        if after != memory:
            await self._services.sweeper_state.put(name, after.to_json())

    def _allowance(self, class_name: str) -> WakeAllowance:
        """What the class may still take in this pass."""
        allowance = self._allowances[class_name]
        return WakeAllowance(visible=allowance.visible, allowed=max(0, allowance.allowed - self._sent[class_name]))

    async def _wake_all(self, keys: Sequence[DueKey]) -> list[DueKey]:
        """Send wakes for the runs that still wait as the index says; returns those for which one was sent."""
        records = await self._read([_key(key) for key in keys])
        # The index lags: a run whose record differs is left to a later pass.
        still = [
            (key, run)
            for key in keys
            if (run := records.get(_key(key))) is not None and run.status is Status.WAITING and run.due_at == key.due_at
        ]
        sent = await self._send("wakes_sent", [run for _, run in still], [key.due_at for key, _ in still])
        done = {(run.tenant, run.id) for run in sent}
        return [key for key, _ in still if (key.tenant, key.run_id) in done]

    async def _send(self, counter: str, runs: Sequence[Run], times: Sequence[datetime]) -> list[Run]:
        """Send wakes that arrive at these times; returns the runs for which one was sent."""
        sends = [
            self._outbox.send(counter, run, _resume(run), _wake(run), delay_seconds=self._delay(run.class_name, at))
            for run, at in zip(runs, times, strict=True)
        ]
        sent = await asyncio.gather(*sends)
        return [run for run, done in zip(runs, sent, strict=True) if done]

    def _delay(self, class_name: str, at: datetime) -> int:
        """Seconds until the class's next wake arrives. Wakes for overdue runs are spread over the pass."""
        per_second = max(1, math.ceil(self._most / PASS_SECONDS))
        turn = self._sent[class_name] // per_second
        self._sent[class_name] += 1
        return max(math.ceil((at - self._now).total_seconds()), turn)

    async def _read(self, keys: Sequence[RunKey]) -> dict[RunKey, Run]:
        records: dict[RunKey, Run] = {}
        for start in range(0, len(keys), MAX_READ):
            part = await legible(self._services.runs, keys[start : start + MAX_READ], now=self._now)
            records.update(part.runs)
        return records


def _state_name(class_name: str) -> str:
    return f"sweep.wakes.{class_name}"


def _key(key: DueKey) -> RunKey:
    return RunKey(tenant=key.tenant, run_id=key.run_id)


def _key_of(run: Run) -> RunKey:
    return RunKey(tenant=run.tenant, run_id=run.id)


def _since(run: Run) -> datetime:
    """Tells one death of a run's worker from the next."""
    return run.lease_until or run.created_at


def _resume(run: Run) -> QueueName:
    return QueueName(class_name=run.class_name, role=RESUME)


def _wake(run: Run) -> Wake:
    return Wake(tenant=run.tenant, run_id=run.id, submission=run.submission, class_name=run.class_name)
