"""The wakes a sweep sends: for waiting runs that are due, and for runs whose worker died (R4, R14)."""

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
from fanfold.service.sweeper.wake_selection import Memory, Room, choose
from fanfold.service.telemetry.reporting import logger
from fanfold.service.wiring import Services

AHEAD = timedelta(seconds=150)
"""How far ahead the due index is asked: two passes and a half, so that one missed pass delays nothing (R4)."""

PASS_SECONDS = 60
"""The sweeper's period; overdue rings are spread over it."""

SENDERS = 16
"""Messages on their way at once."""


_REPAIRS = {
    "rescued": "a run whose worker died was rung for",
    "resent": "a queued run's envelope was sent again",
}
"""What is said of a run for which a message was sent, by the counter: each repair has a line."""


class Outbox:
    """Sends a pass's messages, a few at once; what is sent and what fails is added to `done`."""

    def __init__(self, queue: WorkQueue, done: Counter[str]) -> None:
        self._queue = queue
        self._done = done
        self.few = asyncio.Semaphore(SENDERS)

    async def send(self, counter: str, run: Run, queue: QueueName, message: Message, *, delay_seconds: int = 0) -> bool:
        """Whether it was sent. What fails for one run is left to the next pass."""
        try:
            async with self.few:
                await self._queue.send(queue, message, delay_seconds=delay_seconds)
        except Exception as error:  # also a limit that this run's message meets
            self.failed(run, error)
            return False
        self._done[counter] += 1
        if said := _REPAIRS.get(counter):
            logger().info(said, extra={"run_id": run.id})
        return True

    def failed(self, run: Run, error: Exception) -> None:
        """Count and log what went wrong for a run."""
        self._done["failed"] += 1
        logger().warning("the sweep failed for a run", extra={"run_id": run.id, "error": repr(error)})


@dataclass(slots=True, kw_only=True)
class Backlog:
    """A class's due runs in a pass: rung for before (`known`) or not; `tried` now, and of the fresh ones `rung` for."""

    memory: Memory
    known: Sequence[DueKey]
    fresh: Sequence[DueKey]
    tried: set[DueKey] = field(default_factory=set)
    rung: list[DueKey] = field(default_factory=list)


class Wakes:
    """A pass's wakes: for each class at most `sweep_rings` less what its `resume` queue holds, oldest first.

    `overdue_since` has since when a class's first waiting run is due, or will be, as the index says; `asked` are the
    classes of which the index has told.
    """

    def __init__(
        self, services: Services, outbox: Outbox, now: datetime, done: Counter[str], errors: list[Exception]
    ) -> None:
        self._services = services
        self._errors = errors
        self._most = services.settings.sweep_rings
        self._outbox = outbox
        self._now = now
        self._done = done
        # Each class's room at the beginning of the pass, and how many wakes it got since.
        self._rooms: dict[str, Room] = {}
        self._rung: Counter[str] = Counter()
        self._backlogs: dict[str, Backlog] = {}
        self.overdue_since: dict[str, datetime] = {}
        self.asked: set[str] = set()

    async def measure(self) -> None:
        """Find out what each class has room for. Before that, no class has any."""
        for name in self._services.settings.classes:
            with kept(self._errors):
                depth = await self._services.queue.depth(QueueName(class_name=name, role=RESUME))
                self._rooms[name] = Room.of(depth, most=self._most)

    async def ring_for_due(self) -> None:
        """Wakes for what is overdue, and for what comes due in the time ahead, that has none on its way.

        With half of the room: runs whose worker died have as good a right. `ring_for_more` uses what they leave.
        """
        for class_name in self._rooms:
            with kept(self._errors):
                # As many as a queue may hold have their wake, and as many may get one.
                keys = await self._services.runs.due(class_name, self._now + AHEAD, limit=2 * self._most)
                self.asked.add(class_name)
                if keys:
                    self.overdue_since[class_name] = keys[0].due_at
                memory = await remembered(self._services.marks, _mark(class_name), Memory.from_json, Memory())
                known = [key for key in keys if memory.knows(_key(key), key.due_at)]
                fresh = [key for key in keys if not memory.knows(_key(key), key.due_at)]
                self._backlogs[class_name] = backlog = Backlog(memory=memory, known=known, fresh=fresh)
                room = self._room(class_name)
                await self._ring_for(class_name, backlog, replace(room, allowed=(room.allowed + 1) // 2))

    async def ring_for_more(self) -> None:
        """Wakes for those of the due runs that `ring_for_due` had no room for."""
        for class_name, backlog in self._backlogs.items():
            with kept(self._errors):
                await self._ring_for(class_name, backlog, self._room(class_name))

    async def _ring_for(self, class_name: str, backlog: Backlog, room: Room) -> None:
        late = [key for key in backlog.known if key.due_at <= self._now and key not in backlog.tried]
        fresh = [key for key in backlog.fresh if key not in backlog.tried]
        if not (late or fresh):
            return
        chosen = choose(late, fresh, room)
        backlog.tried.update(chosen.lost, chosen.fresh)
        before = self._done["rung"]
        for key in await self._ring(chosen.lost):
            logger().info("a due run whose wake came to nothing was rung for", extra={"run_id": key.run_id})
        self._done["lost"] += self._done["rung"] - before
        backlog.rung += await self._ring(chosen.fresh)
        after = Memory.of((_key(key), key.due_at) for key in [*backlog.known, *backlog.rung])
        if after != backlog.memory:
            await self._services.marks.put(_mark(class_name), after.to_json())
            backlog.memory = after

    async def rescue(self, abandoned: Sequence[Run]) -> None:
        """Wakes for these runs, whose worker died, with the room that `ring_for_due` has left them."""
        mark = "sweep.rescued"
        memory = await remembered(self._services.marks, mark, Memory.from_json, Memory())
        rung_for: list[Run] = []
        for class_name in self._rooms:
            runs = [run for run in abandoned if run.class_name == class_name]
            known = [run for run in runs if memory.knows(_key_of(run), _since(run))]
            fresh = [run for run in runs if not memory.knows(_key_of(run), _since(run))]
            room = self._room(class_name)
            chosen = choose(known, fresh, room)
            await self._send("rescued", chosen.lost, [self._now] * len(chosen.lost))
            sent = await self._send("rescued", chosen.fresh, [self._now] * len(chosen.fresh))
            rung_for += [*known, *sent]
        after = Memory.of((_key_of(run), _since(run)) for run in rung_for[: 2 * self._most])
        if after != memory:
            await self._services.marks.put(mark, after.to_json())

    def _room(self, class_name: str) -> Room:
        """What is left of the class's room."""
        room = self._rooms[class_name]
        return Room(visible=room.visible, allowed=max(0, room.allowed - self._rung[class_name]))

    async def _ring(self, keys: Sequence[DueKey]) -> list[DueKey]:
        """Rings for those that wait as the index says; returns those it rang for."""
        rows = await self._read([_key(key) for key in keys])
        # Where the index lags the row has moved on: a later pass sees where to.
        still = [
            (key, row)
            for key in keys
            if (row := rows.get(_key(key))) is not None and row.status is Status.WAITING and row.due_at == key.due_at
        ]
        sent = await self._send("rung", [row for _, row in still], [key.due_at for key, _ in still])
        done = {(run.tenant, run.id) for run in sent}
        return [key for key, _ in still if (key.tenant, key.run_id) in done]

    async def _send(self, counter: str, runs: Sequence[Run], times: Sequence[datetime]) -> list[Run]:
        """Wakes that arrive at these times; returns the runs for which one was sent."""
        sends = [
            self._outbox.send(counter, run, _resume(run), _wake(run), delay_seconds=self._delay(run.class_name, at))
            for run, at in zip(runs, times, strict=True)
        ]
        sent = await asyncio.gather(*sends)
        return [run for run, done in zip(runs, sent, strict=True) if done]

    def _delay(self, class_name: str, at: datetime) -> int:
        """Seconds until the class's next wake is to arrive; what is overdue is spread over the pass."""
        per_second = max(1, math.ceil(self._most / PASS_SECONDS))
        turn = self._rung[class_name] // per_second
        self._rung[class_name] += 1
        return max(math.ceil((at - self._now).total_seconds()), turn)

    async def _read(self, keys: Sequence[RunKey]) -> dict[RunKey, Run]:
        rows: dict[RunKey, Run] = {}
        for start in range(0, len(keys), MAX_READ):
            part = await legible(self._services.runs, keys[start : start + MAX_READ], now=self._now)
            rows.update(part.runs)
        return rows


def _mark(class_name: str) -> str:
    return f"sweep.rung.{class_name}"


def _key(key: DueKey) -> RunKey:
    return RunKey(tenant=key.tenant, run_id=key.run_id)


def _key_of(run: Run) -> RunKey:
    return RunKey(tenant=run.tenant, run_id=run.id)


def _since(run: Run) -> datetime:
    """What tells one death of a run's worker from the next."""
    return run.lease_until or run.created_at


def _resume(run: Run) -> QueueName:
    return QueueName(class_name=run.class_name, role=RESUME)


def _wake(run: Run) -> Wake:
    return Wake(tenant=run.tenant, run_id=run.id, submission=run.submission, class_name=run.class_name)
