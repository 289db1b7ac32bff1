"""Deployments in the midst of a schedule: other settings, old processes beside new ones, sometimes a way back.

What is set may go up and down at any moment, but for what no deployment on AWS may set. Classes and lanes
come and go; one that has gone comes back at the latest with the last deployment, for until then nobody works on its
runs.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fanfold.engine.record.messages import RESUME, QueueName
from fanfold.service.settings import ClassSettings, Settings

if TYPE_CHECKING:
    from tests.simulation.nodes import Node
    from tests.simulation.simulation import Simulation

OFTEN = 0.3
"""Of the schedules, so many are deployed anew while they are played."""

LANES = ("high", "normal", "low")
SIDE = "side"
"""The class that comes and goes."""

FUNCTION_SECONDS = 180
"""The worker functions' timeout, and their queues' default visibility. Longer than a lease and a few steps."""
SHORT_FUNCTION_SECONDS = 90
BEGIN_SECONDS = 20
"""What a function has to have beside its longest step and its margin: what synth asks for."""

CHANGES: Mapping[str, Sequence[Any]] = {
    "lease_seconds": (15, 30, 60, 120),
    "clock_skew_seconds": (2, 5, 7),
    "hand_over_margin_seconds": (25, 30, 40),
    "suspend_after_seconds": (0, 1, 5, 30),
    "drain_seconds": (0, 5, 25, 60),
    "max_crashes": (2, 5, 8),
    "concurrency": (2, 32),
    "inline_bytes": (64, 512, 8_192),
    "retention_days": (15, 30, 60),
    "max_life_days": (1, 30, 365),
    "slot_shards": (1, 2, 3),
    "max_map_items": (9, 10_000),
    "inline_map_items": (1, 3, 50),
    "map_batch": (1, 3, 25),
    "sweep_batch": (2, 2_000),
    "sweep_wakes": (2, 1_000),
    "repair_batch": (2, 1_000),
}
"""What a setting may become. In memory there are no shards of indexes, and nothing takes threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What is deployed at a time: for `mixed` seconds processes begin with this or with what was before."""

    at: float
    settings: Settings
    mixed: float = 0.0
    function_seconds: int = FUNCTION_SECONDS


def releases(rng: random.Random, first: Settings, *, within: float) -> list[Release]:
    """What is deployed in a schedule after its beginning, the last of it with all classes and lanes there were."""
    if rng.random() >= OFTEN:
        return []
    found = [Release(at=0.0, settings=first)]
    times = sorted(rng.random() * max(within, 150.0) for _ in range(rng.choice((1, 1, 2, 3))))
    for at in times:
        before = found[-1]
        mixed = rng.choice((0.0, 5.0, 60.0))
        back = len(found) > 1 and rng.random() < 0.3
        found.append(replace(found[-2], at=at, mixed=mixed) if back else _changed(rng, before, at, mixed))
    if _lacks(found[-1], found):
        found.append(Release(at=times[-1] + 40.0 + rng.random() * 60, settings=_whole(found), mixed=5.0))
    return found[1:]


def _changed(rng: random.Random, before: Release, at: float, mixed: float) -> Release:
    names = rng.sample(sorted(CHANGES), k=rng.choice((1, 2, 4, len(CHANGES))))
    given = {name: rng.choice(CHANGES[name]) for name in names}
    classes = {name: _class(rng, of) for name, of in before.settings.classes.items()}
    if rng.random() < 0.3:
        if SIDE in classes:
            del classes[SIDE]
        else:
            classes[SIDE] = replace(classes["model"], lanes=LANES[1:2])
    settings = replace(before.settings, classes=classes, **given)
    # A function has time for its class's longest step and for the hand-over, or synth refuses it.
    short = rng.random() < 0.3 or any(of.max_step_seconds < 30 for of in classes.values())
    seconds = SHORT_FUNCTION_SECONDS if short else FUNCTION_SECONDS
    most = seconds - settings.hand_over_margin_seconds - BEGIN_SECONDS
    classes = {name: replace(of, max_step_seconds=min(of.max_step_seconds, most)) for name, of in classes.items()}
    return Release(at=at, settings=replace(settings, classes=classes), mixed=mixed, function_seconds=seconds)


def _class(rng: random.Random, of: ClassSettings) -> ClassSettings:
    changes: dict[str, Any] = {}
    if rng.random() < 0.4:
        changes["max_queue_depth"] = rng.choice((1, 2, 3, 6)) if of.max_queue_depth else 0
    if rng.random() < 0.3:
        changes["max_step_seconds"] = rng.choice((25.0, 60.0, 90.0))
    if rng.random() < 0.2:
        changes["lanes"] = rng.choice((LANES, LANES[1:], LANES[1:2], LANES[:2]))
    return replace(of, **changes)


def _whole(found: Sequence[Release]) -> Settings:
    """The last settings, with every class and lane there ever was."""
    last = found[-1].settings
    classes = {name: of for release in found for name, of in release.settings.classes.items()}
    classes = {name: replace(of, lanes=_lanes(found, name)) for name, of in classes.items()}
    return replace(last, classes=classes)


def _lanes(found: Collection[Release], name: str) -> tuple[str, ...]:
    ever = {
        lane for release in found if name in release.settings.classes for lane in release.settings.classes[name].lanes
    }
    return tuple(lane for lane in LANES if lane in ever)


def _lacks(last: Release, found: Sequence[Release]) -> bool:
    return any(queue not in queues_of(last.settings) for release in found for queue in queues_of(release.settings))


def queues_of(settings: Settings) -> list[QueueName]:
    """The queues that runs wait in, each class's best lane first, its `resume` next."""
    return [
        QueueName(class_name=name, role=role)
        for name, of in settings.classes.items()
        for role in (of.lanes[0], RESUME, *of.lanes[1:])
    ]


class Rollout:
    """What is deployed at the moment, and what was before it."""

    def __init__(self, simulation: Simulation, later: Sequence[Release]) -> None:
        self._simulation = simulation
        self.all = [Release(at=0.0, settings=simulation.deployment.settings), *later]

    @property
    def done_at(self) -> float:
        """From when on no old process begins."""
        return self.all[-1].at + self.all[-1].mixed

    @property
    def current(self) -> Release:
        """What was deployed last."""
        now = self._simulation.loop.time()
        return [release for release in self.all if release.at <= now][-1]

    @property
    def next(self) -> Release | None:
        """What will be deployed next."""
        now = self._simulation.loop.time()
        return next((release for release in self.all if release.at > now), None)

    @property
    def least_skew_seconds(self) -> float:
        """What any of the processes grants others' clocks at least."""
        return min(release.settings.clock_skew_seconds for release in self.all)

    def bound(self, class_name: str) -> int:
        """The highest bound of the class's queue at any time; 0: none."""
        bounds = [of.max_queue_depth for release in self.all if (of := release.settings.classes.get(class_name))]
        return 0 if 0 in bounds else max(bounds)

    def of_new(self, process: str, kind: str) -> Release:
        """What a process that begins now is deployed with. Those of a service that is rolled are new."""
        current = self.current
        number = self.all.index(current)
        if not number or kind == "worker" or self._simulation.loop.time() >= current.at + current.mixed:
            return current
        chance, _, _ = self._simulation.fate.chance(f"{process}.release")
        return self.all[number - 1] if chance < 0.5 else current

    def keeps(self, node: Node) -> bool:
        """Whether a process that is there may get something more to do."""
        current = self.current
        if node.release is current:
            return True
        mixed = self._simulation.loop.time() < current.at + current.mixed
        return mixed and node.release is self.all[self.all.index(current) - 1]

    async def go(self) -> None:
        """Deploy one after the other; queues that are needed no more are deleted, with what is in them."""
        simulation = self._simulation
        for before, release in zip(self.all, self.all[1:], strict=False):
            await _until(simulation, release.at)
            simulation.note("operator", "deploys", _difference(before.settings, release.settings))
            there = set(queues_of(release.settings))
            simulation.queue.deleted -= there
            gone = [queue for queue in queues_of(before.settings) if queue not in there]
            if gone:
                following = self.all[self.all.index(release) + 1 :]
                patience = min([release.mixed, *(one.at - release.at for one in following)])
                await _until(simulation, release.at + patience)
            for queue in gone:
                simulation.purge(queue)
                simulation.queue.deleted.add(queue)


async def _until(simulation: Simulation, at: float) -> None:
    await simulation.services.clock.sleep(max(0.0, at - simulation.loop.time()))


def _difference(before: Settings, after: Settings) -> str:
    names = [name for name in (*CHANGES, "classes") if getattr(before, name) != getattr(after, name)]
    return ", ".join(f"{name}={getattr(after, name)}" for name in names)
