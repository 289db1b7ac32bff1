"""Over workers: how the real code and the model go, and whether they agree, with limits in the way and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from fanfold.engine.payload import Json
from lab.scale.deployment import Deployment, shipped
from lab.scale.flow import Flow, burst, drained, flow, poisson
from lab.scale.play import Played, arriving, by_functions, by_processes
from lab.scale.profile import Profile, ends, rate, waits
from lab.scale.room import Functions, Processes
from loadtest.measure import quantile

RUNS_A_WORKER = 10
LEAST_RUNS = 400
"""Of a few workers' level: so many say its rate to about one per cent, for each run's work has ± 25 %."""
MODEL_RUNS_A_WORKER = 20
MOST_RUNS = 50_000
LOAD = 0.8
"""Of what the workers could do at most: at this load queue waits are told."""
LOADED_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """So many workers: the rate and waits in seconds of a backlog of `runs`; and waits when runs arrive (`loaded_…`).

    `efficiency` is the rate beside as many times that of one worker. `refused_share` is of arrivals.
    """

    workers: int
    runs: int
    rate: float
    efficiency: float
    wait_p50: float
    wait_p95: float
    binding: str
    loaded_wait_p50: float | None = None
    loaded_wait_p99: float | None = None
    refused_share: float | None = None


def real_level(
    document: Mapping[str, Json], deployment: Deployment, workers: int, *, alone: float | None, call_seconds: float
) -> tuple[Level, Played]:
    """The real code with so many worker processes; `alone` is the rate of one, None where this is it."""
    runs = max(LEAST_RUNS, RUNS_A_WORKER * workers)
    played = by_processes(document, deployment, workers=workers, runs=runs, call_seconds=call_seconds)
    measured, waited = rate(ends(played)), waits(played)
    efficiency = measured / workers / (alone or measured)
    binding = max(played.throttled, key=lambda kind: played.throttled[kind], default=None)
    return (
        Level(
            workers=workers,
            runs=runs,
            rate=measured,
            efficiency=efficiency,
            wait_p50=quantile(waited, 0.5),
            wait_p95=quantile(waited, 0.95),
            binding="workers" if binding is None else binding.value,
        ),
        played,
    )


def same_level(profile: Profile, deployment: Deployment, workers: int) -> Flow:
    """The model of what `real_level` plays."""
    return drained(profile, deployment, workers=workers, runs=max(LEAST_RUNS, RUNS_A_WORKER * workers))


def model_level(profile: Profile, deployment: Deployment, workers: int) -> Level:
    """The model with so many worker processes: a backlog, and arrivals at a load they can bear."""
    backlog = min(MOST_RUNS, max(LEAST_RUNS, MODEL_RUNS_A_WORKER * workers))
    drain = drained(profile, deployment, workers=workers, runs=backlog)
    per_second = LOAD * workers / profile.turn_seconds
    seconds = max(min(LOADED_SECONDS, MOST_RUNS / 2 / per_second), LEAST_RUNS / per_second)
    arrivals = poisson(per_second, seconds)
    loaded = flow(profile, deployment, Processes(workers=workers), arrivals, submitted=True)
    return Level(
        workers=workers,
        runs=backlog,
        rate=drain.rate,
        efficiency=drain.rate * profile.turn_seconds / workers,
        wait_p50=drain.wait(0.5),
        wait_p95=drain.wait(0.95),
        binding=drain.binding,
        loaded_wait_p50=loaded.wait(0.5),
        loaded_wait_p99=loaded.wait(0.99),
        refused_share=loaded.refused / len(arrivals),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Strain:
    """A play in which a limit is in the way. Without `workers` functions work; with `per_second` runs arrive."""

    name: str
    deployment: Deployment
    runs: int
    workers: int | None = None
    per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strained:
    """Seconds until a run had ended, on average, and submits that were refused, by the real code and by the model.

    Not until the last had: a message that is put back a third time comes after minutes, and whether one is, is chance.
    """

    name: str
    real_seconds: float
    model_seconds: float
    real_refused: int
    model_refused: int
    binding: str

    @property
    def difference(self) -> float:
        """Of the model's seconds from the real code's, as a part of the latter."""
        return abs(self.model_seconds / self.real_seconds - 1)


def strains(*, quick: bool) -> Sequence[Strain]:
    """Plays on which real code and model are compared where limits refuse; limits are smaller, so that few runs do."""
    few = Deployment(partition_writes=50, warm_writes=100_000)
    some = [
        Strain(name="partitions of 50 writes/s, 64 workers", deployment=few, runs=640, workers=64),
        Strain(
            name="a table of 200 writes/s, 64 workers", deployment=Deployment(warm_writes=200), runs=640, workers=64
        ),
        Strain(name="a burst of 1,000, as shipped", deployment=shipped(), runs=1_000),
    ]
    if quick:
        return some
    tenth = Deployment(partition_writes=100, warm_writes=100_000, maximum_concurrency=1_000)
    cold = Deployment(warm_writes=25)
    one_counter, one_partition = replace(tenth, index_shards=3), replace(tenth, slot_shards=3)
    return [
        *some,
        Strain(name="a table of 25 writes/s, 64 workers", deployment=cold, runs=640, workers=64),
        Strain(
            name="a table of 200 writes/s, 128 workers", deployment=Deployment(warm_writes=200), runs=1_000, workers=128
        ),
        Strain(
            name="a burst of 3,000 while a mapping grows", deployment=replace(tenth, partition_writes=1_000), runs=3_000
        ),
        Strain(name="100 submits/s, a counter of 100 writes/s", deployment=one_counter, runs=1_200, per_second=100),
        Strain(
            name="100 submits/s, an index partition of 100 writes/s",
            deployment=one_partition,
            runs=1_200,
            per_second=100,
        ),
    ]


def strained(
    strain: Strain, document: Mapping[str, Json], *, processes: Profile, functions: Profile, call_seconds: float
) -> Strained:
    """Play it by the real code and by the model."""
    deployment, runs = strain.deployment, strain.runs
    told: dict[str, Any] = {"call_seconds": call_seconds}
    room = Functions(deployment=deployment)
    if strain.workers is not None:
        played = by_processes(document, deployment, workers=strain.workers, runs=runs, **told)
        modelled = drained(processes, deployment, workers=strain.workers, runs=runs)
    elif strain.per_second is not None:
        seconds = runs / strain.per_second
        played = arriving(document, deployment, per_second=strain.per_second, seconds=seconds, **told)
        arrivals = poisson(strain.per_second, seconds)
        modelled = flow(functions, deployment, room, arrivals, batch_size=deployment.batch_size, submitted=True)
    else:
        played = by_functions(document, deployment, runs=runs, **told)
        modelled = flow(functions, deployment, room, burst(runs), batch_size=deployment.batch_size)
    return Strained(
        name=strain.name,
        real_seconds=fmean(ends(played)),
        model_seconds=modelled.mean_end,
        real_refused=played.refused,
        model_refused=modelled.refused,
        binding=modelled.binding,
    )
