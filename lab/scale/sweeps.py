"""Each setting around its shipped value: what the deployment carries then, and how many shards a rate needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lab.scale.deployment import Deployment, Kind, shipped
from lab.scale.flow import flow, poisson
from lab.scale.profile import Profile
from lab.scale.room import Processes
from lab.scale.sizing import HEADROOM, SETTINGS, ceiling, out_of_the_way, scaled

FACTORS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
SUSTAINED_SECONDS: Final = 10.0
MOST_SUSTAINED: Final = 30_000
"""Submits of one look at whether a rate is carried."""
SHARE: Final = 0.9
"""Of its ceiling: what a deployment has to carry without refusing anybody."""
RATE: Final = 1_000.0
"""Submits a second that the shards are counted for."""

COUNTED: Final[Mapping[str, Sequence[Kind]]] = {
    "slot_shards": (Kind.SLOTS,),
    "index_shards": (Kind.ACTIVE, Kind.ENDED),
    "due_shards": (Kind.WAITING,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A setting's value, the runs a second it allows for long with the others as shipped, and what binds then.

    `alone` is the same with the others out of the way.
    """

    value: float
    rate: float
    binding: str
    alone: float


def sweep(profile: Profile, setting: str) -> Sequence[Point]:
    """One setting from a quarter of its shipped value to sixteen times it, as far as it can be that."""
    base, points = shipped(), {}
    for factor in FACTORS:
        deployment = scaled(base, setting, factor)
        value = getattr(deployment, setting)
        as_shipped, alone = ceiling(profile, deployment), ceiling(profile, out_of_the_way(deployment, setting))
        points[value] = Point(value=value, rate=as_shipped.rate, binding=as_shipped.binding, alone=alone.rate)
    return list(points.values())


def sweeps(profile: Profile, waiting: Profile) -> Mapping[str, Sequence[Point]]:
    """All settings; `waiting` is the profile of runs that suspend once, for the one that concerns only them."""
    return {setting: sweep(waiting if setting == "due_shards" else profile, setting) for setting in SETTINGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """For `RATE` submits a second: writes of a run to it, shards that just do, and shards to plan with."""

    writes_a_run: float
    just: int
    planned: int


def needs(profile: Profile, waiting: Profile) -> Mapping[str, Need]:
    """How many shards of each kind."""
    found = {}
    for setting, kinds in COUNTED.items():
        units = (waiting if setting == "due_shards" else profile).units(submitted=True)
        writes = max(units.get(kind, 0.0) for kind in kinds)
        used = RATE * writes / shipped().partition_writes
        found[setting] = Need(writes_a_run=writes, just=math.ceil(used), planned=math.ceil(used / HEADROOM))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """Submits at a steady rate: the share that was refused, and the median and the tail of the waits in seconds."""

    offered: float
    rate: float
    refused_share: float
    wait_p50: float
    wait_p99: float
    binding: str


def carried(
    profile: Profile, deployment: Deployment, per_second: float, *, seconds: float = SUSTAINED_SECONDS
) -> Carried:
    """The model's word on whether a deployment carries a rate, once its mapping has grown."""
    arrivals = poisson(per_second, min(seconds, MOST_SUSTAINED / per_second))
    room = Processes(workers=deployment.maximum_concurrency)
    told = flow(profile, deployment, room, arrivals, batch_size=deployment.batch_size, submitted=True)
    return Carried(
        offered=per_second,
        rate=told.rate,
        refused_share=told.refused / len(arrivals),
        wait_p50=told.wait(0.5),
        wait_p99=told.wait(0.99),
        binding=told.binding,
    )


def with_shards(deployment: Deployment, setting: str, shards: int) -> Deployment:
    """The deployment with so many shards of one kind."""
    return replace(deployment, **{setting: shards})
