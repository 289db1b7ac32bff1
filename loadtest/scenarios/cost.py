"""Counts what runs take of AWS, call by call, and what that costs beside Step Functions and durable functions.

On the emulator calls and units are what its services answered; in memory they follow from the sizes of the items.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fanfold.service.aws_clients import Aws
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.wiring import services
from loadtest.access import endpoint_of, session_of
from loadtest.aws_meter import Meter
from loadtest.cost import dollars, durable, express, standard, total, usage, writes
from loadtest.cost_model_stores import metered
from loadtest.invoking import Bucket, Counted, Functions
from loadtest.prices import DATE, PRICES
from loadtest.scenario import Found, Session
from loadtest.server import LANES
from loadtest.shapes import FOUR, REVIEW, TINY, WIDE, Shape, chain
from loadtest.systems_under_test import Needs
from loadtest.targets import Goal
from loadtest.verdict import Check, at_least, at_most, equal, shown, toward

QUICK = {"length": 1_000, "rounds": 2}

BATCH = 10
RUNS = 20
"""Of a small shape in each round."""
MOST_WRITES = 6
BUSY_DOLLARS = 10.0
IDLE_DOLLARS = 13.0
BELOW_STANDARD = 10.0
BELOW_DURABLE = 4.0
CHAIN_RATIO = 1.2
SHORT_CHAIN = 100
STANDARD = "Step Functions Standard"
DURABLE_LEAST = "durable functions, at least"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A workflow, and how many of its runs share an invocation."""

    shape: Shape
    at_once: int

    @property
    def name(self) -> str:
        """How it is called in figures."""
        return f"{self.shape.name}, {'busy' if self.at_once > 1 else 'idle'}"


def cost(
    session: Session,
    *,
    length: Annotated[int, "Steps of the long chain, which is counted in memory."] = 10_000,
    rounds: Annotated[int, "Rounds of 20 runs; that with the least processor time counts, for others use it too."] = 5,
) -> Found:
    """Each shape idle (a run per invocation) and, where that makes a difference, busy (batches of ten)."""
    cases = [Case(shape=shape, at_once=n) for shape in (TINY, FOUR, REVIEW) for n in (1, BATCH)]
    cases.append(Case(shape=WIDE, at_once=1))
    chains = [Case(shape=chain(steps), at_once=1) for steps in (SHORT_CHAIN, length)]
    on_wire = session.kind != "memory"
    with functions_of(session) as functions:
        counted = asyncio.run(_carried(session, functions, cases, rounds=rounds))
    with _in_memory() as functions:
        counted |= asyncio.run(_carried(session, functions, chains, rounds=1))
    figures = {
        case.name: _figures(case, counted[case.name], boto3_counted=on_wire and case not in chains)
        for case in (*cases, *chains)
    }
    prices = {part.value: {"dollars": price.dollars, "unit": price.unit} for part, price in PRICES.items()}
    return Found(
        figures={"cases": figures, "prices": prices, "prices_of": DATE},
        checks=_checks(session, figures, counted, chains, n=rounds * RUNS),
    )


@contextmanager
def functions_of(session: Session) -> Iterator[Functions]:
    """The functions on the scenario's target. Raises ValueError for a URL, whose calls nobody can count."""
    match session.kind:
        case "memory":
            with _in_memory() as functions:
                yield functions
        case "emulator":
            with session.target(Needs(unworked=True, settings={"submits_per_minute": 0})) as target:
                assert target.stack is not None
                settings, meter = Settings.from_env(target.stack.env), Meter()
                boto, endpoint = session_of(target.stack), endpoint_of(target.stack)
                with (
                    closing(Aws(boto, endpoint_url=endpoint)) as aws,
                    closing(Aws(boto, endpoint_url=endpoint)) as beside,
                ):
                    meter.attach(aws)
                    yield Functions(
                        services(settings, aws),
                        meter,
                        beside=services(settings, beside),
                        readable=Bucket(beside, settings.bucket),
                    )
        case _:
            raise ValueError("cost counts calls where they are made: --target memory or emulator")


@contextmanager
def _in_memory() -> Iterator[Functions]:
    classes = {"model": ClassSettings(lanes=LANES, state_machine="memory")}
    settings = Settings(classes=classes, submits_per_minute=0, mock_latency_ms=0)
    meter = Meter()
    counted, beside = metered(settings, meter)
    yield Functions(counted, meter, beside=beside, readable=beside.blobs)


async def _carried(session: Session, functions: Functions, cases: list[Case], *, rounds: int) -> dict[str, Counted]:
    found: dict[str, Counted] = {}
    for case in cases:
        name, small = case.shape.document["name"], case.shape.tasks <= BATCH
        session.say(f"counting {case.name}")
        await functions.apply(case.shape.document)
        if case.shape.depth <= SHORT_CHAIN:
            await functions.carry(name, case.shape.given)  # a worker's first look at a version reads its document
        for number in range(rounds if small else 1):
            one = await functions.carry(name, case.shape.given, runs=RUNS if small else 1, at_once=case.at_once)
            facts = {"runs": one.runs, "log_bytes": one.log_bytes, "processor_seconds": dict(one.processor_seconds)}
            session.recorder.row(case=case.name, round=number, calls=dict(one.meter.calls), **facts)
            best = found.setdefault(case.name, one)
            if sum(one.processor_seconds.values()) < sum(best.processor_seconds.values()):
                found[case.name] = one
    return found


def _figures(case: Case, counted: Counted, *, boto3_counted: bool) -> dict[str, Any]:
    used = usage(counted, boto3_counted=boto3_counted)
    least, most = durable(case.shape)
    others = {
        STANDARD: standard(case.shape),
        "Step Functions Express": express(case.shape),
        DURABLE_LEAST: least,
        "durable functions, at most": most,
    }
    return {
        "calls": counted.calls,
        "write_units": sum(counted.meter.write_units.values()) / counted.runs,
        "index_units": sum(counted.meter.index_units.values()) / counted.runs,
        "read_units": sum(counted.meter.read_units.values()) / counted.runs,
        "processor_ms": 1_000 * sum(counted.processor_seconds.values()) / counted.runs,
        "used": {part.value: amount for part, amount in used.items() if amount},
        "dollars_per_million": {part.value: amount for part, amount in dollars(used).items()},
        "total": total(used),
        "others": {name: None if other is None else total(other) for name, other in others.items()},
        "others_used": {
            name: {part.value: amount for part, amount in other.items()}
            for name, other in others.items()
            if other is not None
        },
    }


def _checks(
    session: Session, figures: dict[str, Any], counted: dict[str, Counted], chains: list[Case], *, n: int
) -> list[Check]:
    idle, busy = figures["diamond, idle"], figures["diamond, busy"]
    short, long = (
        (figures[case.name]["write_units"] + figures[case.name]["index_units"]) / case.shape.tasks for case in chains
    )
    others = {name: value / busy["total"] for name, value in busy["others"].items() if value is not None}
    checks = [
        *toward(
            Goal.WRITES,
            at_most("writes of a diamond, without the slots counter", writes(counted["diamond, idle"]), MOST_WRITES),
            equal("reads of a diamond, but the submit's of the workflow's current version", _reads(idle), 0),
        ),
        *toward(
            Goal.CHAIN,
            at_most(f"write units per step, {chains[1].shape.name} ÷ {SHORT_CHAIN}", long / short, CHAIN_RATIO),
        ),
        *toward(
            Goal.COST,
            # The processor's time is in them, and a machine that does other things takes longer for the same.
            session.timed(at_most("USD per million diamonds, busy", busy["total"], BUSY_DOLLARS)),
            session.timed(at_most("USD per million diamonds, idle", idle["total"], IDLE_DOLLARS)),
            at_least("Step Functions Standard ÷ ours, busy", others[STANDARD], BELOW_STANDARD),
            at_least("durable functions, at least, ÷ ours, busy", others[DURABLE_LEAST], BELOW_DURABLE),
            n=n,
        ),
    ]
    for name, figure in figures.items():
        checks.append(shown(f"{name}: USD per million", _line(figure)))
        checks.append(shown(f"{name}: calls per run", ", ".join(f"{n} {c:g}" for n, c in figure["calls"].items())))
    return checks


def _reads(figure: dict[str, Any]) -> float:
    made: dict[str, float] = figure["calls"]
    return sum(made.get(name, 0) for name in ("GetItem", "BatchGetItem", "Query", "Scan")) - 1


def _line(figure: dict[str, Any]) -> str:
    others = (f"{name} {'can not' if value is None else f'{value:.2f}'}" for name, value in figure["others"].items())
    return f"{figure['total']:.2f}; " + ", ".join(others)
