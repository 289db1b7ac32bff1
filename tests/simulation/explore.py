"""Every placement of a few faults on one short course, instead of random ones on many: rare orders are met for sure.

The course is a deployment without any faults. Each call on it is a site; a script names sites and
what goes wrong there. What happens after the first fault has sites of its own, so the second fault
is placed on the course the first one made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.simulation.clients import Wish
from tests.simulation.deployment import Deployment
from tests.simulation.fate import FOR_QUEUES, NOT_FOR_READS, Fate, Fault, Plan
from tests.simulation.outcome import Failure
from tests.simulation.schedule import play_out


@dataclass(frozen=True, slots=True)
class Site:
    """A call that was made: `process.port.method#n`, and what can go wrong with it."""

    name: str
    read: bool
    queue: bool


@dataclass(frozen=True, slots=True)
class Blow:
    """A fault, and how much of it (in [0, 1))."""

    fault: Fault
    amount: float = 0.5


Script = Mapping[str, Blow]


class Scripted(Fate):
    """A fate without chance: what the script says, and nothing else. Remembers every call's site."""

    def __init__(self, script: Script) -> None:
        super().__init__(0)
        self.script = script
        self.sites: list[Site] = []
        self.faults = ()
        self.brownouts = ()
        self.calm_at = 0.0

    def plan(self, site: str, *, read: bool, queue: bool, at: float) -> Plan | float:
        self._counts[site] += 1
        name = f"{site}#{self._counts[site]}"
        self.sites.append(Site(name, read, queue))
        if name not in self.script:
            return 0.0
        blow = self.script[name]
        plan = Plan(name, blow.fault, blow.amount)
        self.struck.append(plan)
        return plan


def explore(
    deployment: Deployment,
    blows: Sequence[Blow],
    *,
    depth: int,
    where: Callable[[Site], bool],
    first: Sequence[Blow] | None = None,
) -> Iterator[Failure | None]:
    """Plays every script of up to `depth` blows at sites that `where` admits; yields what each came to.

    With `first`, the first blow of each script is one of those.
    """
    yield from _deeper(deployment, blows, {}, depth=depth, where=where, start=0, now=blows if first is None else first)


def _deeper(
    deployment: Deployment,
    blows: Sequence[Blow],
    script: Script,
    *,
    depth: int,
    where: Callable[[Site], bool],
    start: int,
    now: Sequence[Blow],
) -> Iterator[Failure | None]:
    fate = Scripted(script)
    yield play_out(fate, deployment)[0].failure
    if depth == 0:
        return
    for number, site in enumerate(fate.sites[start:], start):
        if where(site) and site.name not in script:
            for blow in now:
                if fits(site, blow.fault):
                    yield from _deeper(
                        deployment,
                        blows,
                        {**script, site.name: blow},
                        depth=depth - 1,
                        where=where,
                        start=number + 1,
                        now=blows,
                    )


def fits(site: Site, fault: Fault) -> bool:
    """Whether this can go wrong with such a call."""
    return not (site.read and fault in NOT_FOR_READS) and (site.queue or fault not in FOR_QUEUES)


def one_run(document: Mapping[str, object], **given: object) -> Deployment:
    """A deployment in which one client submits one run, with a key, after a second."""
    wish = Wish(at=1.0, tenant="acme", workflow="first", marker="acme:0", padding=0, key="k", delay=0)
    documents = {("acme", "first"): {"name": "first", **document}}
    return Deployment(documents=documents, wishes=[wish], **given)  # type: ignore[arg-type]  # its fields, by name
