"""What is deployed and asked for in a schedule: settings, fleet, workflows, submits."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fanfold.service.settings import ClassSettings, Settings
from tests.simulation.batches import Batch, batched
from tests.simulation.clients import Wish, in_lanes, wishes
from tests.simulation.fate import Fate
from tests.simulation.features import enriched
from tests.simulation.operators import Order, orders
from tests.simulation.perils import Workflows, flawed, some
from tests.simulation.releases import LANES, SIDE, Release, releases
from tests.simulation.workload import document

TENANTS = ("acme", "bolt")
SHORT_HOURS: Mapping[str, Any] = {
    "slot_hour_seconds": 60,
    "slot_return_seconds": 10,
    "slot_void_seconds": 150,
    "repair_after_seconds": 240,
    "repair_again_seconds": 90,
}
"""Windows of slot repair that a schedule lives to see. Each bears a write that is done 40 s late."""

MANY_LANES = 0.15
"""Of the schedules, so many have a class with all three lanes: more polls make each of them slower."""

MAX_STEP_SECONDS = 90.0
"""Of the class: an invocation of 180 s has time for one, and for the hand-over after it."""


STEPPED = 0.15
"""Of the schedules, so many have clocks that are set meanwhile."""

Step = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One deployment and its clients.

    `batches` are submitted in one call each. `orders` are operators' moves; with `machine`, maps may go
    on elsewhere; with `short_hours`, slots are repaired within minutes. `bound` is of queued runs (0:
    none), `batch` of the lane's mapping; `lag` is the indexes', in seconds; with `encoded`, every record
    makes the round trip it makes in the real table; with `skewed`, clocks differ by up to the margin;
    by `steps` clocks are set meanwhile (when, whose, how many granted margins they are off then);
    with `drained`, the queues must run empty at last. `lanes` are the class's, best first; `side`: there is the other
    class at first. `releases` are deployed later. Deciding on runs of the workflows that are `lethal` kills, of the
    `buggy` raises; the adapters of `flawed` calls raise so many times. A worker that is told to stop has
    `drain_seconds`. So many of the invocations are refused for load (`throttled`).
    """

    documents: Mapping[tuple[str, str], Mapping[str, Any]]
    wishes: Sequence[Wish]
    bound: int = 0
    lease_seconds: float = 60
    lambdas: bool = True
    processes: int = 0
    batch: int = 1
    lag: float = 0.0
    max_receives: int = 10
    encoded: bool = False
    skewed: bool = False
    steps: Sequence[Step] = ()
    drained: bool = True
    batches: Sequence[Batch] = ()
    orders: Sequence[Order] = ()
    machine: bool = False
    short_hours: bool = False
    lanes: Sequence[str] = ("normal",)
    side: bool = False
    releases: Sequence[Release] = ()
    lethal: Workflows = field(default_factory=dict)
    buggy: Workflows = field(default_factory=dict)
    flawed: Mapping[tuple[str, str], int] = field(default_factory=dict)
    drain_seconds: float = 25
    throttled: float = 0.0

    @property
    def healed(self) -> bool:
        """Whether the sweeper gets to the repair of slots in the time of a schedule, and has something to repair."""
        return self.short_hours

    @property
    def settings(self) -> Settings:
        """What the code is configured with."""
        of_class = ClassSettings(
            lanes=tuple(self.lanes),
            max_queue_depth=self.bound,
            max_step_seconds=MAX_STEP_SECONDS,
            state_machine="simulated" if self.machine else "",
        )
        classes = {"model": of_class, SIDE: replace(of_class, lanes=LANES[1:2])} if self.side else {"model": of_class}
        settings = Settings(
            classes=classes,
            inline_bytes=512,
            lease_seconds=self.lease_seconds,
            drain_seconds=self.drain_seconds,
            inline_map_items=3,
            map_batch=3,
        )
        return replace(settings, **SHORT_HOURS) if self.short_hours else settings

    @classmethod
    def by_chance(cls, fate: Fate, *, runs: int | None = None) -> Deployment:
        """A random one: small, and of any shape."""
        shape = fate.rng("deployment")
        written = fate.rng("workflows")
        documents = {
            (tenant, name): document(written, name)
            for tenant in TENANTS
            for name in ("first", "second")[: written.choice((1, 2))]
        }
        runs = runs or shape.choice((1, 2, 2, 3, 4))
        features = fate.rng("features")
        lively = features.random() < 0.65
        if lively:
            documents = {slot: enriched(features, one) for slot, one in documents.items()}
        clients = wishes(fate.rng("clients"), sorted(documents), runs=runs, within=fate.calm_at / 2)
        lanes = LANES if fate.rng("many lanes").random() < MANY_LANES else LANES[1:2]
        if len(lanes) > 1:
            clients = in_lanes(fate.rng("lanes.clients"), clients, lanes)
        alone, batches = batched(fate.rng("batches"), clients)
        fleet = shape.choice(("lambda", "process", "both"))
        found = cls(
            documents=documents,
            wishes=alone,
            batches=batches,
            bound=shape.choice((0, 0, 1, 2, 3)),
            lease_seconds=shape.choice((15, 60)),
            lambdas=fleet != "process",
            processes={"lambda": 0, "process": 2, "both": 1}[fleet],
            batch=shape.choice((1, 3, 10)),
            lag=shape.choice((0.0, 0.0, 2.0, 20.0)),
            max_receives=shape.choice((3, 10, 10)),
            encoded=shape.random() < 0.5,
            skewed=shape.random() < 0.5,
            drained=shape.random() < 0.2,
            orders=orders(fate.rng("operators"), within=fate.calm_at + 100) if lively else (),
            machine=lively and features.random() < 0.8,
            short_hours=lively and features.random() < 0.3,
            lanes=lanes,
            lethal=some(fate.rng("lethal"), documents),
            buggy=some(fate.rng("buggy"), documents),
            flawed=flawed(fate.rng("flawed")),
            drain_seconds=fate.rng("drains").choice((25, 25, 5, 0)),
            steps=steps(fate.rng("steps"), within=fate.calm_at),
            throttled=fate.rng("throttled").choice((*[0.0] * 9, 0.5)),
        )
        return deployed_anew(fate.rng("releases"), found, within=fate.calm_at)


def steps(rng: random.Random, *, within: float) -> Sequence[Step]:
    """Now and then some clocks step, most of them within what is granted, some by minutes; at last all are right."""
    if rng.random() >= STEPPED:
        return ()
    found = []
    for _ in range(rng.choice((1, 3, 8))):
        far = rng.choice((1, 1, 1, 20, 100)) * (rng.random() - 0.5)
        found.append((rng.random() * within, rng.random(), far))
    return tuple(sorted(found))


def deployed_anew(rng: random.Random, first: Deployment, *, within: float) -> Deployment:
    """The deployment, now and then with others after it; then some workflows are of a class that comes and goes."""
    side = rng.random() < 0.5
    later = releases(rng, replace(first, side=side).settings, within=within)
    if not later:
        return first
    documents = first.documents
    if side or any(SIDE in release.settings.classes for release in later):
        documents = {
            name: {**one, "class": SIDE} if rng.random() < 0.4 else one for name, one in sorted(documents.items())
        }
    return replace(first, documents=documents, releases=later, side=side)
