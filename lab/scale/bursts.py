"""Bursts through functions: how long until the last run has ended, and what it was waiting for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lab.scale.deployment import Deployment, shipped
from lab.scale.flow import burst, flow
from lab.scale.profile import CREATE, RESERVE, Profile
from lab.scale.room import Functions
from lab.scale.sizing import sized

SHIPPED = "as shipped"
WIDER = "MaximumConcurrency 1,000, the rest as shipped"
SIZED = "MaximumConcurrency 1,000, shards and table to match"
MOST_WIDER = 100_000
"""The largest burst of that deployment: a larger one only refuses for longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A burst of so many runs: how long until all had ended, and what bound in the middle of that.

    `accept_seconds` is the least time in which so many are accepted, where nothing drains meanwhile. `left` is how many
    runs had not ended at which second.
    """

    runs: int
    drain_seconds: float
    rate: float
    wait_p50: float
    binding: str
    accept_seconds: float
    left: Sequence[tuple[float, int]]


def deployments(profile: Profile) -> dict[str, Deployment]:
    """What bursts are tried on."""
    wider = replace(shipped(), maximum_concurrency=1_000)
    most = wider.maximum_concurrency * wider.batch_size / profile.turn_seconds
    return {
        SHIPPED: shipped(),
        WIDER: wider,
        SIZED: sized(profile, most, submitted=False, base=replace(wider, account_concurrency=3_000)),
    }


def drain(profile: Profile, deployment: Deployment, runs: int) -> Drain:
    """All of a burst, accepted before the first is worked on."""
    told = flow(profile, deployment, Functions(deployment=deployment), burst(runs), batch_size=deployment.batch_size)
    return Drain(
        runs=runs,
        drain_seconds=told.last_end,
        rate=told.drained_per_second,
        wait_p50=told.wait(0.5),
        binding=told.binding,
        accept_seconds=runs / accepted_per_second(deployment),
        left=told.left,
    )


def accepted_per_second(deployment: Deployment) -> float:
    """Submits a second that the limits of writes allow while nothing else writes."""
    kinds = {*RESERVE, *CREATE}
    return min(
        deployment.writes(kind) * deployment.shards(kind) / (RESERVE.get(kind, 0.0) + CREATE.get(kind, 0.0))
        for kind in kinds
    )
