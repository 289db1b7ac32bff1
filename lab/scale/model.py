"""The model's events: runs go through workers and limits, with what a profile knows of the code.

Of the code's own rules it has those that matter where a limit refuses: how often a put is tried again, when a claim
gives up and its message goes back, how long a slot's return is tried.
"""

from __future__ import annotations

import heapq
import itertools
import random
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fanfold.engine.errors import Throttled
from fanfold.service.effects import PAUSE_SECONDS
from fanfold.service.settings import Settings
from fanfold.service.worker.message_handler import back_after
from fanfold.service.worker.run_coordinator import PAUSES_SECONDS, TRIES_TO_CLAIM
from lab.scale.deployment import Deployment, Kind
from lab.scale.gates import Gates, Tokens
from lab.scale.limits import QUEUE_LATENCY, TABLE_LATENCY
from lab.scale.profile import CREATE, RESERVE, RETURN, Profile
from lab.scale.room import WORKERS, Room

NOTHING: Final = "nothing"
"""Whoever arrives finds room."""
LOOK_SECONDS: Final = 0.2
SUBMIT_SECONDS: Final = 0.035
"""From a submit's arrival to its message's being in the queue: a read, an update, a send, and what the API computes."""
CREATE_TRIES: Final = 13
"""So often, within `fanfold.service.api.submit.PUT_BUDGET_SECONDS`, a row is tried."""
RETURN_TRIES: Final = int(Settings().slot_return_seconds / PAUSE_SECONDS)
"""So often a slot's return is tried before it is left to the sweeper."""
POINTS: Final = 200
"""Of a curve over time."""


@dataclass(slots=True)
class _Batch:
    """What one worker has in hand: ends of runs and returns of places that are not through."""

    left: int


@dataclass(slots=True)
class _Row:
    """A submitted run's row, and whether it is there yet."""

    there: bool = False


class _Run:
    """A run on its way: when it was first in its queue, how often it was put back; its next stage, its refusals."""

    __slots__ = ("batch", "first", "outages", "refusals", "row", "stage")

    def __init__(self, first: float, outages: int, row: _Row | None, batch: _Batch) -> None:
        self.first = first
        self.outages = outages
        self.row = row
        self.batch = batch
        self.stage = 0
        self.refusals = 0


class _Toll:
    """What one kind of write takes: of any shard, drawn for each run; `times` is how often it was paid."""

    __slots__ = ("_choices", "_refused", "_rng", "times", "units")

    def __init__(self, units: Mapping[Kind, float], deployment: Deployment, gates: Gates, rng: random.Random) -> None:
        most = max(deployment.shards(kind) for kind in units)
        self._choices: list[list[tuple[Tokens, float, Kind]]] = [
            [
                (gates.of((kind, shard % deployment.shards(kind))), count / deployment.writes(kind), kind)
                for kind, count in units.items()
            ]
            for shard in range(most)
        ]
        self._refused = gates.refused
        self._rng = rng
        self.units = units
        self.times = 0

    def paid(self, now: float) -> bool:
        """Take it if all of it is there."""
        choices = self._choices
        drawn = choices[0] if len(choices) == 1 else choices[int(self._rng.random() * len(choices))]
        # As `Tokens` itself does it: most of a model's time is spent here.
        for tokens, seconds, kind in drawn:
            until = tokens.until
            if (until if until > now else now) + seconds > now + tokens.burst:
                self._refused[kind] += 1
                return False
        for tokens, seconds, _ in drawn:
            until = tokens.until
            tokens.until = (until if until > now else now) + seconds
        self.times += 1
        return True


@dataclass(slots=True, kw_only=True)
class Books:
    """What is written down while it flows; a look is a time, the units used by then, and who kept whom waiting."""

    waits: array[float] = field(default_factory=lambda: array("d"))
    ends: array[float] = field(default_factory=lambda: array("d"))
    looks: list[tuple[float, Mapping[Kind, float], str]] = field(default_factory=list)
    refused: int = 0
    put_back: int = 0
    leaked: int = 0


_ARRIVAL, _CREATE, _QUEUED, _LOOK, _STAGE, _RETURN, _FREE = range(7)
"""A submit; its row; messages in the queue; perhaps there is more room; a put; a slot's return; a free worker."""

_Message = tuple[float, int, _Row | None]
"""When a run was first in its queue, how often it was put back (or something was tried), and its row, if not there."""


class Model:
    """Runs on their way through one deployment, once: `run` it, then read its books."""

    def __init__(self, profile: Profile, deployment: Deployment, room: Room, batch_size: int, seed: int) -> None:
        self._profile = profile
        self._deployment = deployment
        self._room = room
        self._batch_size = batch_size
        self._rng = random.Random(seed)
        self.gates = Gates(deployment)
        new_row = {**CREATE, **profile.stages[0].units}
        self._tolls = [
            _Toll(units, deployment, self.gates, self._rng)
            for units in (RESERVE, CREATE, RETURN, new_row, *(stage.units for stage in profile.stages))
        ]
        self._reserve, self._create, self._return, self._claim_new, *self._puts = self._tolls
        self._events: list[tuple[float, int, int, _Run | None, Sequence[_Message]]] = []
        self._numbers = itertools.count()
        self._waiting: list[_Message] = []
        self._head = 0
        self._busy = 0
        self._looking = False
        self._why = NOTHING
        self.books = Books()

    def run(self, arrivals: Sequence[float], *, submitted: bool) -> None:
        """Until nothing is left to happen; see `lab.scale.flow.flow`."""
        if submitted:
            for at in arrivals:
                self._push(at, _ARRIVAL)
        else:
            for at, group in itertools.groupby(arrivals):
                self._push(at, _QUEUED, messages=[(at, 0, None)] * sum(1 for _ in group))
        every = max(1, len(arrivals) // POINTS)
        looked, ends, events, pop = 0, self.books.ends, self._events, heapq.heappop
        while events:
            now, _, kind, run, messages = pop(events)
            if kind == _STAGE:
                assert run is not None
                self._put(now, run)
                if len(ends) >= looked:
                    looked = len(ends) + every
                    self.books.looks.append((now, self._used(), self._why))
            elif kind == _RETURN:
                assert run is not None
                self._returned(now, run, messages[0][1])
            elif kind == _ARRIVAL:
                self._arrived(now)
            elif kind == _CREATE:
                self._created(now, messages[0])
            else:
                if kind == _FREE:
                    self._busy -= 1
                elif kind == _LOOK:
                    self._looking = False
                self._waiting.extend(messages)
                self._begin(now)

    def _push(self, at: float, kind: int, run: _Run | None = None, messages: Sequence[_Message] = ()) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), kind, run, messages))

    def _arrived(self, now: float) -> None:
        """A submit: a slot, or a refusal; its row, its message."""
        if not self._reserve.paid(now):
            self.books.refused += 1
            return
        row, sent = _Row(), now + SUBMIT_SECONDS
        self._created(now, (now, 0, row))
        self._push(sent + QUEUE_LATENCY.median, _QUEUED, messages=[(sent, 0, row)])

    def _created(self, now: float, message: _Message) -> None:
        """A submit's row: there, or tried again after a pause; given up, the caller is told that it can't be said."""
        first, tries, row = message
        if row is None or row.there:
            return
        row.there = self._create.paid(now)
        if row.there:
            return
        if tries == CREATE_TRIES:
            self.books.refused += 1
            return
        pause = min(1.0, 0.05 * 2**tries)
        self._push(now + pause + TABLE_LATENCY.median, _CREATE, messages=[(first, tries + 1, row)])

    def _begin(self, now: float) -> None:
        """Give what waits to who is free."""
        allowed, why = self._room.at(now)
        waiting, stage = self._waiting, self._profile.stages[0]
        while self._head < len(waiting) and self._busy < allowed:
            taken = waiting[self._head : self._head + self._batch_size]
            self._head += len(taken)
            self._busy += 1
            batch = _Batch(2 * len(taken))
            # Workers that begin all at once would go on in step.
            after = self._rng.random() if now == 0.0 and why == WORKERS else 0.0
            for first, outages, row in taken:
                self._push(now + after + stage.drawn(self._rng), _STAGE, _Run(first, outages, row, batch))
        if self._head < len(waiting):
            self._why = why
            if allowed < self._room.most and not self._looking:
                self._looking = True
                self._push(now + LOOK_SECONDS, _LOOK)
        else:
            self._why = NOTHING
            waiting.clear()
            self._head = 0

    def _put(self, now: float, run: _Run) -> None:
        """A put of a run: done, tried again after a pause, or, if it is its claim, given up."""
        # A claim that is there before its row creates it: the submit finds it.
        new = run.row is not None and not run.row.there
        if not (self._claim_new if new else self._puts[run.stage]).paid(now):
            run.refusals += 1
            if run.stage == 0 and run.refusals >= TRIES_TO_CLAIM:
                delay = back_after(Throttled(), run.outages).total_seconds()
                self.books.put_back += 1
                self._push(now + delay, _QUEUED, messages=[(run.first, run.outages + 1, run.row)])
                return self._out_of_hand(now, run.batch, 2)
            pause = PAUSES_SECONDS[min(run.refusals, len(PAUSES_SECONDS) - 1)]
            return self._push(now + pause + TABLE_LATENCY.median, _STAGE, run)
        run.refusals = 0
        if run.row is not None:
            run.row.there = True
        if run.stage == 0:
            self.books.waits.append(now - run.first)
            self._returned(now, run, 0)
        run.stage += 1
        if run.stage < len(self._puts):
            return self._push(now + self._profile.stages[run.stage].drawn(self._rng), _STAGE, run)
        self.books.ends.append(now)
        return self._out_of_hand(now, run.batch, 1)

    def _returned(self, now: float, run: _Run, tries: int) -> None:
        """A return of a run's slot: done, tried again after a pause, or given up."""
        if not self._return.paid(now):
            if tries < RETURN_TRIES:
                again = now + PAUSE_SECONDS + TABLE_LATENCY.median
                return self._push(again, _RETURN, run, [(0.0, tries + 1, None)])
            self.books.leaked += 1
        return self._out_of_hand(now, run.batch, 1)

    def _out_of_hand(self, now: float, batch: _Batch, parts: int) -> None:
        batch.left -= parts
        if batch.left == 0:
            self._push(now + self._profile.release_seconds, _FREE)

    def _used(self) -> Mapping[Kind, float]:
        """Units taken so far, by kind."""
        found: defaultdict[Kind, float] = defaultdict(float)
        for toll in self._tolls:
            for kind, count in toll.units.items():
                found[kind] += toll.times * count
        return found
