"""The model: runs go through workers and limits as processes of SimPy, with what a profile knows of the code.

Of the code's own rules it has those that matter where a limit refuses: how often a put is tried again, when a claim
gives up and its message goes back, how long a slot's return is tried.
"""

from __future__ import annotations

import random
from array import array
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import simpy

from fanfold.engine.errors import Throttled
from fanfold.service.effects import PAUSE_SECONDS
from fanfold.service.settings import Settings
from fanfold.service.worker.dispositions import back_after
from fanfold.service.worker.run_commits import PAUSES_SECONDS, TRIES_TO_CLAIM
from lab.scale.deployment import Deployment, Kind
from lab.scale.gates import Gates, Units
from lab.scale.limits import QUEUE_LATENCY, TABLE_LATENCY
from lab.scale.profile import CREATE, RESERVE, RETURN, Profile
from lab.scale.room import WORKERS, Room

NOTHING: Final = "nothing"
"""Whoever arrives finds room."""
LOOK_SECONDS: Final = 0.2
SUBMIT_SECONDS: Final = 0.035
"""From a submit's arrival to its message's being in the queue: a read, an update, a send, and what the API computes."""
CREATE_TRIES: Final = 13
"""So often, within `fanfold.service.api.submit.PUT_PATIENCE`, a row is tried."""
RETURN_TRIES: Final = int(Settings().slot_return_seconds / PAUSE_SECONDS)
"""So often a slot's return is tried before it is left to the sweeper."""
POINTS: Final = 200
"""Of a curve over time."""

Course = Generator[simpy.Event, Any, None]
"""A process of SimPy."""


@dataclass(slots=True)
class _Message:
    """A run in its queue: since when, how often it was put back, and whether its row is there yet."""

    first: float
    outages: int = 0
    created: bool = True


@dataclass(slots=True, kw_only=True)
class Books:
    """What is written down while it flows; a look is a time, the units used by then, and who kept whom waiting."""

    waits: array[float] = field(default_factory=lambda: array("d"))
    ends: array[float] = field(default_factory=lambda: array("d"))
    looks: list[tuple[float, Mapping[Kind, float], str]] = field(default_factory=list)
    refused: int = 0
    put_back: int = 0
    leaked: int = 0


class Model:
    """Runs on their way through one deployment, once: `run` it, then read its books."""

    def __init__(self, profile: Profile, deployment: Deployment, room: Room, batch_size: int, seed: int) -> None:
        self.gates = Gates(deployment)
        self.books = Books()
        self._profile = profile
        self._deployment = deployment
        self._room = room
        self._batch_size = batch_size
        self._rng = random.Random(seed)
        first, *later = (stage.units for stage in profile.stages)
        self._reserve, self._create, self._return, self._claim, self._claim_new, *self._puts = (
            self._by_shard(units) for units in (RESERVE, CREATE, RETURN, first, {**CREATE, **first}, *later)
        )
        self._clock = simpy.Environment()
        self._waiting: deque[_Message] = deque()
        self._busy = 0
        self._looking = False
        self._why = NOTHING

    def run(self, arrivals: Sequence[float], *, submitted: bool) -> None:
        """Until nothing is left to happen; see `lab.scale.flow.flow`."""
        self._every = max(1, len(arrivals) // POINTS)
        self._clock.process(self._submits(arrivals) if submitted else self._accepted(arrivals))
        self._clock.run()

    def _by_shard(self, units: Mapping[Kind, float]) -> Sequence[Units]:
        """What one write counts against, whichever shard is drawn for it."""
        shards = self._deployment.shards
        most = max(shards(kind) for kind in units)
        return [{(kind, drawn % shards(kind)): count for kind, count in units.items()} for drawn in range(most)]

    def _paid(self, choices: Sequence[Units]) -> bool:
        """Take what a write needs, of any shard, if all of it is there."""
        drawn = choices[0] if len(choices) == 1 else choices[int(self._rng.random() * len(choices))]
        return self.gates.passed(self._clock.now, drawn) is None

    def _accepted(self, arrivals: Sequence[float]) -> Course:
        """Runs that were accepted before, and are in the queue at these times."""
        for at, group in groupby(arrivals):
            yield self._clock.timeout(at - self._clock.now)
            self._waiting.extend(_Message(at) for _ in group)
            self._begin()

    def _submits(self, arrivals: Sequence[float]) -> Course:
        """Submits: a slot each, or a refusal; a row, a message."""
        for at in arrivals:
            yield self._clock.timeout(at - self._clock.now)
            if self._paid(self._reserve):
                message = _Message(at + SUBMIT_SECONDS, created=False)
                self._clock.process(self._creation(message))
                self._clock.process(self._queued(message, SUBMIT_SECONDS + QUEUE_LATENCY.median))
            else:
                self.books.refused += 1

    def _creation(self, message: _Message) -> Course:
        """A submit's row: there, or tried again after a pause; given up, the caller is told that it can't be said."""
        for tries in range(CREATE_TRIES + 1):
            if message.created or self._paid(self._create):
                message.created = True
                return
            yield self._clock.timeout(min(1.0, 0.05 * 2**tries) + TABLE_LATENCY.median)
        self.books.refused += 1

    def _queued(self, message: _Message, after: float) -> Course:
        yield self._clock.timeout(after)
        self._waiting.append(message)
        self._begin()

    def _begin(self) -> None:
        """Give what waits to who is free."""
        now = self._clock.now
        allowed, why = self._room.at(now)
        waiting = self._waiting
        while waiting and self._busy < allowed:
            self._busy += 1
            taken = [waiting.popleft() for _ in range(min(self._batch_size, len(waiting)))]
            # Workers that begin all at once would go on in step.
            after = self._rng.random() if now == 0.0 and why == WORKERS else 0.0
            self._clock.process(self._batch(taken, after))
        self._why = why if waiting else NOTHING
        if waiting and allowed < self._room.most and not self._looking:
            self._looking = True
            self._clock.process(self._look())

    def _look(self) -> Course:
        """Perhaps there is more room by now."""
        yield self._clock.timeout(LOOK_SECONDS)
        self._looking = False
        self._begin()

    def _batch(self, taken: Sequence[_Message], after: float) -> Course:
        """What one worker has in hand at once."""
        yield self._clock.all_of([self._clock.process(self._run(message, after)) for message in taken])
        yield self._clock.timeout(self._profile.release_seconds)
        self._busy -= 1
        self._begin()

    def _run(self, message: _Message, after: float) -> Course:
        """A run's claim, or its message's way back; then its other puts, and beside them its slot's return."""
        claim, *later = self._profile.stages
        yield self._clock.timeout(after + claim.drawn(self._rng))
        refusals = 0
        # A claim that is there before its row creates it: the submit finds it.
        while not self._put(self._claim if message.created else self._claim_new):
            refusals += 1
            if refusals >= TRIES_TO_CLAIM:
                self.books.put_back += 1
                back = back_after(Throttled(), message.outages).total_seconds()
                message.outages += 1
                self._clock.process(self._queued(message, back))
                return
            yield self._pause(refusals)
        message.created = True
        self.books.waits.append(self._clock.now - message.first)
        returned = self._clock.process(self._slot_return())
        for stage, units in zip(later, self._puts, strict=True):
            yield self._clock.timeout(stage.drawn(self._rng))
            refusals = 0
            while not self._put(units):
                refusals += 1
                yield self._pause(refusals)
        self.books.ends.append(self._clock.now)
        yield returned

    def _put(self, units: Sequence[Units]) -> bool:
        if len(self.books.ends) >= len(self.books.looks) * self._every:
            self.books.looks.append((self._clock.now, dict(self.gates.used), self._why))
        return self._paid(units)

    def _pause(self, refusals: int) -> simpy.Event:
        pause = PAUSES_SECONDS[min(refusals, len(PAUSES_SECONDS) - 1)]
        return self._clock.timeout(pause + TABLE_LATENCY.median)

    def _slot_return(self) -> Course:
        """A run's slot: given back, tried again after a pause, or given up."""
        for _ in range(RETURN_TRIES):
            if self._paid(self._return):
                return
            yield self._clock.timeout(PAUSE_SECONDS + TABLE_LATENCY.median)
        if not self._paid(self._return):
            self.books.leaked += 1
