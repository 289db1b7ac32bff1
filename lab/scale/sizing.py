"""What each limit allows, which one binds, which setting moves it, and what a rate needs: arithmetic on a profile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lab.scale.deployment import Deployment, Kind
from lab.scale.limits import MAPPING_MOST, PARTITION_WRITES
from lab.scale.profile import Profile
from lab.scale.room import ACCOUNT, MAPPING, MAXIMUM

HEADROOM: Final = 0.8
"""Of a limit that is planned with: arrivals come at random, and what is refused is tried again."""

API_SECONDS: Final = 0.05
"""How long a submit's function is taken: three calls to the table, one to SQS, and what they compute."""

MOVES: Final[Mapping[str, str]] = {
    Kind.TABLE: "warm_writes",
    Kind.LIST: "warm_writes",
    Kind.DUE: "warm_writes",
    Kind.SLOTS: "slot_shards",
    Kind.ACTIVE: "index_shards",
    Kind.ENDED: "index_shards",
    Kind.WAITING: "due_shards",
    MAXIMUM: "maximum_concurrency",
    ACCOUNT: "account_concurrency",
    MAPPING: "batch_size",
}
"""The setting that moves each limit. `warm_writes` is the table's and indexes' `WarmThroughput`, which grows by itself
as well; `account_concurrency` is a quota that AWS raises on request."""

SETTINGS: Final = tuple(dict.fromkeys(MOVES.values()))
MOST_SETTING: Final[Mapping[str, int]] = {"maximum_concurrency": 1_000, "batch_size": 10}
"""What a setting can be at most: a mapping's MaximumConcurrency, and SQS's largest batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """Runs a second that a deployment can carry for long, and the name of the limit that allows no more."""

    rate: float
    binding: str


def ceilings(profile: Profile, deployment: Deployment, *, submitted: bool = True) -> Mapping[str, float]:
    """Runs a second that each limit allows, by its name, once a lane's mapping has grown.

    `profile` is that of functions. With `submitted` as many are submitted as end, else a backlog drains.
    """
    found: dict[str, float] = {
        kind: deployment.writes(kind) * deployment.shards(kind) / count
        for kind, count in profile.units(submitted=submitted).items()
        if count
    }
    of_turn = deployment.batch_size / profile.turn_seconds
    found[MAXIMUM] = deployment.maximum_concurrency * of_turn
    found[MAPPING] = MAPPING_MOST * of_turn
    # A run takes its part of a batch's function and, where it is submitted, the API's.
    taken = 1 / of_turn + (API_SECONDS if submitted else 0.0)
    found[ACCOUNT] = deployment.account_concurrency / taken
    return found


def ceiling(profile: Profile, deployment: Deployment, *, submitted: bool = True) -> Ceiling:
    """The least of the ceilings."""
    found = ceilings(profile, deployment, submitted=submitted)
    binding = min(found, key=lambda name: found[name])
    return Ceiling(rate=found[binding], binding=str(binding))


def sized(
    profile: Profile, rate: float, *, submitted: bool, base: Deployment, partition_writes: float = PARTITION_WRITES
) -> Deployment:
    """The deployment with shards and throughput for so many runs a second, none below what `base` has."""
    units = profile.units(submitted=submitted)

    def shards(*kinds: Kind) -> int:
        return max(1, *(math.ceil(rate * units.get(kind, 0.0) / partition_writes / HEADROOM) for kind in kinds))

    warm = rate * max(units.get(kind, 0.0) for kind in (Kind.TABLE, Kind.LIST, Kind.DUE)) / HEADROOM
    return replace(
        base,
        slot_shards=max(base.slot_shards, shards(Kind.SLOTS)),
        index_shards=max(base.index_shards, shards(Kind.ACTIVE, Kind.ENDED)),
        due_shards=max(base.due_shards, shards(Kind.WAITING)),
        warm_writes=max(base.warm_writes, math.ceil(warm / 1_000) * 1_000.0),
    )


def scaled(deployment: Deployment, setting: str, factor: float) -> Deployment:
    """The deployment with one setting so many times as large, within what it can be."""
    value = max(1, round(getattr(deployment, setting) * factor))
    return replace(deployment, **{setting: min(value, MOST_SETTING.get(setting, value))})


def out_of_the_way(deployment: Deployment, setting: str) -> Deployment:
    """The deployment with every setting but one so large that only that one can bind."""
    found = deployment
    for other in SETTINGS:
        if other != setting:
            found = scaled(found, other, 1_000)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingStep:
    """A deployment on the way up: its ceiling, and what was changed to get to it (nothing at first)."""

    deployment: Deployment
    ceiling: Ceiling
    changed: str


def ladder(profile: Profile, deployment: Deployment, *, target: float) -> Sequence[SizingStep]:
    """From a deployment up to a rate: each step doubles the setting that moves what binds on the one before.

    Ends early where no setting moves it.
    """
    steps = [SizingStep(deployment=deployment, ceiling=ceiling(profile, deployment), changed="")]
    while steps[-1].ceiling.rate < target:
        setting = MOVES[steps[-1].ceiling.binding]
        raised = scaled(steps[-1].deployment, setting, 2)
        if raised == steps[-1].deployment:
            break
        value = getattr(raised, setting)
        steps.append(SizingStep(deployment=raised, ceiling=ceiling(profile, raised), changed=f"{setting} = {value:g}"))
    return steps
