"""The model: runs flow through workers and limits, event by event, with what a profile knows of the code."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from lab.scale.deployment import Deployment, Kind
from lab.scale.model import NOTHING, POINTS, Model
from lab.scale.profile import MIDDLE, Profile, rate
from lab.scale.room import Processes, Room
from loadtest.measure import quantile

USED_UP: Final = 0.95
"""A limit of which this share is used is the one that binds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What came of it: times in seconds since the beginning, waits from arrival to claim, least first.

    `used` is the share of each limit that was used in the middle of the runs' ends, `binding` what kept it from going
    faster then; `left` how many had not ended at which time. `refused` are arrivals whose counter had no unit,
    `put_back` messages whose claims gave up, `leaked` places whose return did, `throttled` refusals by limit.
    """

    runs: int
    rate: float
    last_end: float
    mean_end: float
    waits: Sequence[float]
    used: Mapping[Kind, float]
    binding: str
    left: Sequence[tuple[float, int]]
    refused: int
    put_back: int
    leaked: int
    throttled: Mapping[Kind, int]

    def wait(self, share: float) -> float:
        """The wait that so many of the runs did not exceed."""
        return quantile(self.waits, share)

    @property
    def drained_per_second(self) -> float:
        """Runs by the time until the last had ended."""
        return self.runs / self.last_end


def flow(
    profile: Profile,
    deployment: Deployment,
    room: Room,
    arrivals: Sequence[float],
    *,
    batch_size: int = 1,
    submitted: bool = False,
    seed: int = 0,
) -> Flow:
    """Let runs that arrive at these times (ascending, in seconds) flow through workers of `batch_size` runs each.

    `submitted`: each arrival is a submit, which writes as well, and is refused where its counter has no unit. Else all
    were accepted before. Raises ValueError when fewer than ten runs end.
    """
    model = Model(profile, deployment, room, batch_size, seed)
    model.run(arrivals, submitted=submitted)
    books, ends = model.books, list(model.books.ends)  # events come in order, so these do
    used, binding = _binding(model, deployment)
    step = max(1, len(ends) // POINTS)
    return Flow(
        runs=len(ends),
        rate=rate(ends),
        last_end=ends[-1],
        mean_end=fmean(ends),
        waits=sorted(books.waits),
        used=used,
        binding=binding,
        left=[(ends[number], len(ends) - number - 1) for number in range(0, len(ends), step)],
        refused=books.refused,
        put_back=books.put_back,
        leaked=books.leaked,
        throttled=Counter(model.gates.refused),
    )


def drained(profile: Profile, deployment: Deployment, *, workers: int, runs: int, seed: int = 0) -> Flow:
    """A backlog of runs through so many workers of one run each that are there all the time."""
    return flow(profile, deployment, Processes(workers=workers), burst(runs), seed=seed)


def burst(runs: int) -> Sequence[float]:
    """So many arrivals at once, at the beginning."""
    return array("d", bytes(8 * runs))


def poisson(per_second: float, seconds: float, *, seed: int = 0) -> Sequence[float]:
    """Arrivals at random moments, so many a second on average."""
    rng, now, found = random.Random(seed), 0.0, array("d")
    while (now := now + rng.expovariate(per_second)) < seconds:
        found.append(now)
    return found


def _binding(model: Model, deployment: Deployment) -> tuple[Mapping[Kind, float], str]:
    """How much of each limit was used in the middle, and what bound there."""
    looks, refused = model.books.looks, model.gates.refused
    low, high = (looks[min(len(looks) - 1, int(share * len(looks)))] for share in MIDDLE)
    seconds = high[0] - low[0]
    if seconds <= 0:
        return {}, NOTHING
    used = {
        kind: (units - low[1].get(kind, 0.0)) / seconds / deployment.writes(kind) / deployment.shards(kind)
        for kind, units in high[1].items()
    }
    most = max(used, key=lambda kind: used[kind])
    if used[most] >= USED_UP:
        return used, most.value
    if model.books.put_back > len(model.books.ends) / 10:
        return used, f"{max(refused, key=lambda kind: refused[kind])}, claims given up"
    whys = [why for at, _, why in looks if low[0] <= at <= high[0]]
    return used, max(sorted(set(whys)), key=whys.count)
