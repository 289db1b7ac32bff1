"""The engine alone: diamonds per second of one processor, and what a dependency level costs; then latency, idle.

The first two are taken in this process, in memory with the real codec, whatever the target is. Latency is taken from
the runs' own times on the target, one run after the other: nothing else goes on.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

from fanfold import Client
from loadtest.counting import drained, tags_of
from loadtest.engine import CONCURRENCY, packing_seconds, worked
from loadtest.measure import quantiles
from loadtest.scenario import Found, Session
from loadtest.shapes import chain
from loadtest.systems_under_test import Needs
from loadtest.targets import Goal
from loadtest.verdict import at_most, equal, shown, toward
from loadtest.warmup import warm
from loadtest.workflows import DIAMOND

QUICK = {"runs": 300, "rounds": 1, "looks": 10}

PACKINGS = 40.0
"""Of a page of events, in whose time the engine carries a diamond: it takes 30 where it carries 670 a second."""
READS = 4.0
LEVEL_READS = 1.0
"""A read of a run that is there says how fast the target and this machine are; a level's commit is a write or two."""
SHALLOW = 2
DEEP = 12
"""Chains whose difference is what levels cost; what a run costs whatever its depth is in both."""


def engine(
    session: Session,
    *,
    runs: Annotated[int, "Diamonds of a round in memory."] = 2_000,
    rounds: Annotated[int, "Rounds; the best counts, for others use this machine too."] = 5,
    looks: Annotated[int, "Runs on the target, one after the other, of each shape."] = 50,
) -> Found:
    """No other process takes part in the first part; the second is one worker process on the target."""
    worked(DIAMOND, max(1, runs // 10))  # what is made once is not what is measured
    found = []
    for number in range(rounds):
        found.append(worked(DIAMOND, runs))
        facts = {"processor_seconds": found[-1].processor_seconds, "elapsed_seconds": found[-1].elapsed_seconds}
        session.recorder.row(phase="engine", round=number, runs=runs, **facts)
    best = min(found, key=lambda it: it.processor_seconds)
    rate = runs / best.processor_seconds
    packings = 1 / rate / packing_seconds()
    few = max(1, runs // 10)
    shallow, deep = (worked(chain(steps).document, few) for steps in (SHALLOW, DEEP))
    level_ms = 1_000 * (deep.processor_seconds - shallow.processor_seconds) / few / (DEEP - SHALLOW)
    figures: dict[str, Any] = {
        "diamonds_per_processor_second": rate,
        "packings_per_diamond": packings,
        "diamonds_per_elapsed_second": runs / min(it.elapsed_seconds for it in found),
        "submit_processor_ms": 1_000 * min(it.submit_processor_seconds for it in found) / runs,
        "level_processor_ms": level_ms,
        "concurrency": CONCURRENCY,
    }
    with session.target(Needs(workers=1)) as target, target.client() as client:
        documents = {"diamond": DIAMOND, "shallow": chain(SHALLOW).document, "deep": chain(DEEP).document}
        for document in documents.values():
            client.apply(document)
            warm(target, client, document["name"], 3, callers=1)
        taken = {
            name: _idle(session, client, document["name"], f"{session.tag}-{name}", looks)
            for name, document in documents.items()
        }
        read = quantiles(_read(client, DIAMOND["name"]) for _ in range(looks)).p50
    diamond = quantiles(taken["diamond"])
    level = (quantiles(taken["deep"]).p50 - quantiles(taken["shallow"]).p50) / (DEEP - SHALLOW)
    figures |= {"idle_seconds": {name: quantiles(values) for name, values in taken.items()}, "level_seconds": level}
    figures["read_seconds"] = read
    return Found(
        figures=figures,
        checks=[
            equal("idle runs that succeeded", sum(map(len, taken.values())), len(taken) * looks),
            *toward(
                Goal.ENGINE,
                session.timed(at_most("a diamond ÷ packing a page of 20 events", packings, PACKINGS)),
                n=runs * rounds,
            ),
            *toward(
                Goal.LATENCY,
                session.timed(at_most("p95 of an idle diamond ÷ a read, median", diamond.p95 / read, READS)),
                n=looks,
            ),
            *toward(
                Goal.LEVEL,
                session.timed(at_most("a dependency level, median ÷ a read, median", level / read, LEVEL_READS)),
                n=2 * looks,
            ),
            shown("diamonds per second of one processor", f"{rate:.4g}"),
            shown("a read of a run", f"{read:.3g} s"),
            shown("an idle diamond by its own times", diamond),
            shown("a dependency level, median", f"{level:.3g} s"),
            shown("processor time of a dependency level, in memory", f"{level_ms:.3g} ms"),
            shown("processor time of a submit, in memory", f"{figures['submit_processor_ms']:.3g} ms"),
        ],
    )


def _read(client: Client, workflow: str) -> float:
    """Seconds of one read of the newest run of a workflow."""
    run = next(client.runs(workflow=workflow, page=1))
    begun = time.monotonic()
    client.get(run["id"])
    return time.monotonic() - begun


def _idle(session: Session, client: Client, workflow: str, tag: str, looks: int) -> list[float]:
    """Seconds from the acceptance to the last commit of runs that were alone."""
    for _ in range(looks):
        client.wait(client.submit(workflow, tags=tags_of(tag))["id"], timeout=60)
    ended = drained(client, tag, within_seconds=60)
    session.keep(workflow, ended.listed)
    succeeded = [row for row in ended.listed if row["status"] == "succeeded"]
    return type(ended)(ids=ended.ids, listed=succeeded).seconds("created_at", "finished_at")
