"""What goes wrong in a schedule, all of it decided by one integer.

A decision depends on the seed and on its site (which process, which call, the how manieth), and on
nothing else. So a schedule replays from its seed, and taking one fault away leaves the others
where they are: that is what makes a failing schedule shrink.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What becomes of a call to a service, or of the process that makes it."""

    THROTTLED = "refused for load"
    DOWN = "could not be asked"
    LOST = "not done, no answer"
    DONE = "done, no answer"
    LATE = "done later, no answer"
    SLOW = "answered late"
    TWICE = "done twice"
    STRAY = "delivered late, or seen wrong"
    DIE_BEFORE = "the process dies before it"
    DIE_AFTER = "the process dies after it"
    FREEZE_BEFORE = "the process freezes before it"
    FREEZE_AFTER = "the process freezes after it"
    LUCK = "something happens between calls"


FAMILIES: tuple[tuple[Fault, ...], ...] = (
    (Fault.THROTTLED, Fault.DOWN),
    (Fault.LOST, Fault.DONE, Fault.LATE),
    (Fault.SLOW,),
    (Fault.TWICE, Fault.STRAY),
    (Fault.DIE_BEFORE, Fault.DIE_AFTER),
    (Fault.FREEZE_BEFORE, Fault.FREEZE_AFTER),
)
"""A schedule has some of these: with all of them at once few runs get far enough to meet the rare ones."""

NOT_FOR_READS = frozenset({Fault.DONE, Fault.LATE})
FOR_QUEUES = frozenset({Fault.TWICE, Fault.STRAY})


@dataclass(frozen=True, slots=True)
class Plan:
    """A fault, where it strikes, and how much of it (in [0, 1))."""

    site: str
    fault: Fault
    amount: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Brownout:
    """A time in which most calls to one service go wrong, for everybody, in the same ways."""

    service: str
    begins: float
    ends: float
    faults: tuple[Fault, ...]


BROWNOUT_RATE = 0.8

WEIGHTS = {".runs.put": 2.5, ".queue.receive": 0.3, ".queue.depth": 0.5}
"""How much oftener than others these calls go wrong: commits are what it is about, polls are most of all calls."""


class Fate:
    """All chance of a schedule. `spared` are sites at which nothing goes wrong after all."""

    def __init__(self, seed: int, *, spared: frozenset[str] = frozenset()) -> None:
        self.seed = seed
        self.spared = spared
        self.struck: list[Plan] = []
        self._counts: Counter[str] = Counter()
        self._key = str(seed).encode()
        shape = self.rng("shape")
        families = [family for family in FAMILIES if shape.random() < 0.5]
        self.faults = tuple(fault for family in families for fault in family)
        self.rate = shape.choice((0.01, 0.04, 0.1, 0.25)) if self.faults else 0.0
        self.brownouts: tuple[Brownout, ...] = ()
        # Faults end at some time; what is promised is promised for after.
        self.calm_at = shape.choice((20.0, 60.0, 150.0, 400.0))
        if shape.random() < 0.3:
            self.brownouts = tuple(self._brownout(shape) for _ in range(shape.choice((1, 2))))

    def _brownout(self, shape: random.Random) -> Brownout:
        begins = shape.random() * self.calm_at
        return Brownout(
            service=shape.choice(("runs", "runs", "queue", "slots", "blobs")),
            begins=begins,
            ends=min(self.calm_at, begins + shape.choice((3.0, 12.0, 60.0))),
            faults=tuple(fault for family in shape.sample(FAMILIES[:3], k=shape.choice((1, 1, 2))) for fault in family),
        )

    def rng(self, site: str) -> random.Random:
        """A source of chance of its own for a place that needs much of it."""
        return random.Random(f"{self.seed}/{site}")

    def chance(self, site: str) -> tuple[float, float, float]:
        """Three numbers in [0, 1) for the next decision at this site."""
        self._counts[site] += 1
        digest = hashlib.blake2b(f"{site}#{self._counts[site]}".encode(), key=self._key, digest_size=12).digest()
        a, b, c = struct.unpack(">III", digest)
        return a / 2**32, b / 2**32, c / 2**32

    def strikes(self, site: str, probability: float, *, at: float) -> float | None:
        """Whether something of its own kind happens here (and how much of it), in the time of faults."""
        chance, amount, _ = self.chance(site)
        name = f"{site}#{self._counts[site]}"
        if chance >= probability or at >= self.calm_at or name in self.spared or not self.faults:
            return None
        self.struck.append(Plan(name, Fault.LUCK, amount))
        return amount

    def plan(self, site: str, *, read: bool, queue: bool, at: float) -> Plan | float:
        """What goes wrong with the next call at this site; if nothing, its latency in seconds."""
        chance, amount, which = self.chance(site)
        rate, faults = self.rate * next((w for call, w in WEIGHTS.items() if call in site), 1.0), self.faults
        for brownout in self.brownouts:
            if brownout.begins <= at < brownout.ends and f".{brownout.service}." in site:
                rate, faults = BROWNOUT_RATE, brownout.faults
        if chance < rate and at < self.calm_at:
            name = f"{site}#{self._counts[site]}"
            fault = faults[int(which * len(faults))]
            fits = not (read and fault in NOT_FOR_READS) and (queue or fault not in FOR_QUEUES)
            if fits and name not in self.spared:
                plan = Plan(name, fault, amount)
                self.struck.append(plan)
                return plan
        return amount * 0.03 if which < 0.3 else 0.0
