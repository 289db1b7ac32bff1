"""What a run takes of its worker and of every limit, as the real code took it: all that the model knows of the code."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from lab.scale.deployment import Kind
from lab.scale.gates import units_of_slot
from lab.scale.play import Played
from lab.scale.region import Course

MIDDLE = (0.1, 0.9)
"""The part of a play's ends that its rate is taken from: neither its beginning nor its last few workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What precedes one put of a worker's: seconds since the one before (or the message), and its units by kind.

    Seconds are drawn evenly from `seconds` ± `spread`.
    """

    seconds: float
    spread: float
    units: Mapping[Kind, float]

    def drawn(self, rng: random.Random) -> float:
        """Seconds of one run."""
        return self.seconds + self.spread * (2 * rng.random() - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One run of a workflow: its stages, and how long its worker is not free after the last one, in seconds.

    `turn_seconds` is how long a worker is taken by what it has in hand at once, where no limit makes it wait.
    """

    stages: Sequence[Stage]
    release_seconds: float
    turn_seconds: float

    def units(self, *, submitted: bool) -> Mapping[Kind, float]:
        """Write units of one run by kind, by its worker alone or with those of its submission."""
        found: defaultdict[Kind, float] = defaultdict(float)
        parts = [stage.units for stage in self.stages] + [RETURN]
        if submitted:
            parts += [RESERVE, CREATE]
        for part in parts:
            for kind, count in part.items():
                found[kind] += count
        return dict(found)


RETURN: Mapping[Kind, float] = {kind: count for (kind, _), count in units_of_slot(0).items()}
"""A worker returns the run's slot beside its first stage's end."""

RESERVE = RETURN
"""A submit takes a slot, in the same way."""

CREATE: Mapping[Kind, float] = {Kind.TABLE: 1.0, Kind.LIST: 1.0, Kind.ACTIVE: 1.0}
"""And puts the row: version 1, which the list index finds from then on."""


def rate(moments: Sequence[float]) -> float:
    """How many a second, in the middle of these moments. Raises ValueError for fewer than ten."""
    if len(moments) < 10:
        raise ValueError(f"{len(moments)} moments are too few for a rate")
    ordered = sorted(moments)
    low, high = (round(share * (len(ordered) - 1)) for share in MIDDLE)
    return (high - low) / (ordered[high] - ordered[low])


def of_processes(played: Played, workers: int) -> Profile:
    """The profile of what that many processes of one run each did while no limit made them wait.

    What a worker does between a run's last commit and its next message is what is left of its time.
    """
    stages = _stages(played.courses)
    cycle = workers / rate(ends(played))
    release = max(0.0, cycle - sum(stage.seconds for stage in stages))
    return Profile(stages=stages, release_seconds=release, turn_seconds=cycle)


def of_functions(played: Played) -> Profile:
    """The profile of runs in batches: after the last of a batch, its place is free when its messages are deleted."""
    release = fmean(turn.freed - turn.written for turn in played.turns)
    turn = fmean(turn.freed - turn.taken for turn in played.turns)
    return Profile(stages=_stages(played.courses), release_seconds=release, turn_seconds=turn)


def ends(played: Played) -> list[float]:
    """When runs ended, in virtual seconds."""
    return [course.ended for course in played.courses if course.ended is not None]


def waits(played: Played) -> list[float]:
    """How long runs waited from acceptance to their first claim, in seconds, least first."""
    return sorted(course.claimed - course.accepted for course in played.courses if course.claimed is not None)


def _stages(courses: Sequence[Course]) -> list[Stage]:
    """Put by put, the mean of all runs. Raises ValueError where they did not do the same."""
    counts = {len(course.writes) for course in courses}
    if len(counts) != 1:
        raise ValueError(f"runs of one workflow made {sorted(counts)} puts: a limit or a fault was in the way")
    stages = []
    for number in range(counts.pop()):
        gaps = [course.writes[number].gap for course in courses]
        # An even distribution has a half width of √3 standard deviations.
        spread = min(math.sqrt(3) * pstdev(gaps), fmean(gaps))
        units: defaultdict[Kind, float] = defaultdict(float)
        for course in courses:
            for kind, count in course.writes[number].units.items():
                units[kind] += count
        mean = {kind: count / len(courses) for kind, count in units.items()}
        stages.append(Stage(seconds=fmean(gaps), spread=spread, units=mean))
    return stages
