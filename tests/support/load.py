"""The load that faults are done to on a local stack, and the judgement on it when it has ended."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.evidence import Evidence, gather
from tests.support.fleet import Fleet
from tests.support.site import CLASS, Site, until

RUNS = int(os.environ.get("FAULTS_RUNS", "20"))
"""How many runs are going while processes are killed; `make faults` says more."""

SEED = int(os.environ.get("FAULTS_SEED", "1"))
"""Draws whom to kill at random; when, real processes decide."""

TIMEOUT_SECONDS = 300 + RUNS * 0.6
"""How long runs may take on a machine that does other things too. A healthy machine needs a tenth of it."""

OTHER_CLASS = "harness"
"""A class for processes only: its functions are off. It has the same workflows, with its name behind theirs."""

CHAIN = ("one", "two", "three", "four")
POISON, GORGE, DAWDLE = "poison", "gorge", "dawdle"
POISONS = (POISON, GORGE, DAWDLE)
"""Workflows whose runs kill their worker: in a step, by a decision's memory, by a decision's time. For the last two the
workers need `POISONED` in their environment."""

POISONED = {"PYTHONPATH": os.fspath(Path(__file__).with_name("poison"))}


def _effect(*needs: str) -> dict[str, Any]:
    return {"task": "chaos.effect", "needs": list(needs), "input": "${input.pace}", "retry": {"max_attempts": 20}}


_SHAPES: Sequence[Mapping[str, Any]] = (
    {"name": "speck", "steps": {"only": _effect()}},
    {
        "name": "rhombus",
        "steps": {
            "seed": _effect(),
            "left": _effect("seed"),
            "right": _effect("seed"),
            "combine": _effect("left", "right"),
        },
    },
    {
        "name": "chain",
        "steps": {name: _effect(*needs) for name, needs in zip(CHAIN, [(), *zip(CHAIN)], strict=False)},
    },
    {
        "name": "nap",
        "steps": {"before": _effect(), "nap": {"wait": {"for": "4s"}, "needs": ["before"]}, "after": _effect("nap")},
    },
    {"name": POISON, "steps": {"drink": {"task": "chaos.crash"}}},
    {"name": GORGE, "steps": {"drink": {"task": "core.echo"}}},
    {"name": DAWDLE, "steps": {"drink": {"task": "core.echo"}}},
)

WORKFLOWS = [
    *_SHAPES,
    *({**shape, "name": f"{shape['name']}-{OTHER_CLASS}", "class": OTHER_CLASS} for shape in _SHAPES),
]

LEDGERED: Mapping[str, Sequence[str]] = {
    workflow["name"]: [name for name, step in workflow["steps"].items() if step.get("task") == "chaos.effect"]
    for workflow in WORKFLOWS
}
"""Each workflow's steps whose executions are in the ledger."""

QUICK = {"pace": {"ms": 20}}


def mixed(number: int, given: Any) -> list[tuple[str, Any]]:
    """So many runs of all shapes, every second one a chain."""
    shapes = itertools.cycle(["chain", "rhombus", "chain", "speck"])
    return [(shape, given) for shape in itertools.islice(shapes, number)]


def elsewhere(runs: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The same runs in the other class."""
    return [(f"{workflow}-{OTHER_CLASS}", given) for workflow, given in runs]


@contextmanager
def processes(site: Site, count: int, *, concurrency: int = 4, class_name: str = CLASS) -> Iterator[Fleet]:
    """Worker processes instead of a class's functions; dead letters stay where they are."""
    site.switch(workers=False, dead_letters=False, class_name=class_name)
    with Fleet(site.state.parent, class_name=class_name, concurrency=concurrency, environ=POISONED) as fleet:
        fleet.start(count)
        yield fleet


def functions(site: Site) -> None:
    """The functions as deployed; dead letters stay where they are."""
    site.switch(workers=True, dead_letters=False)


def judged(site: Site, ids: Sequence[str]) -> Evidence:
    """The evidence on runs that have ended: no promise was broken.

    Rows, journals and the ledger agree, no finished step was executed again, nothing innocent (of these runs or of
    any before) is a dead letter, and as many places are taken as rows are queued: the sweeper may have to give back
    some that died with a worker.
    """
    evidence = gather(site.records(ids), site.ledger)
    assert sorted(evidence.runs) == sorted(ids)
    assert evidence.problems(LEDGERED) == []
    # A poisonous run's own message may be a dead letter: it was received twice for each crash. Its row carries the run.
    dead = site.records(sorted(site.dead_letters()))
    assert [run for run in dead.values() if not run.workflow.startswith(POISONS)] == []
    until(
        lambda: (site.sweep_in_turn(), site.slots() == site.queued())[1],
        seconds=TIMEOUT_SECONDS,
        what=lambda: f"{site.slots()} places are taken, and {site.queued()} runs are queued",
    )
    return evidence
