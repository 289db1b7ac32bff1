"""Scale beyond the box: 1 to 10,000 workers and bursts of a million, against AWS's documented latencies and limits.

The real code is carried as far as it goes on virtual time; a model that it calibrates, and has to agree with, goes on
from there. The target plays no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any

from lab.scale import bursts
from lab.scale.deployment import Deployment, shipped
from lab.scale.levels import Level, model_level, real_level, same_level, strained, strains
from lab.scale.play import by_functions, by_processes
from lab.scale.profile import Profile, of_functions, of_processes
from lab.scale.sizing import SETTINGS, ceiling, ladder, sized
from lab.scale.sweeps import RATE, SHARE, carried, needs, sweeps, with_shards
from loadtest.cost import CALL_PROCESSOR_SECONDS
from loadtest.engine import worked
from loadtest.options import Numbers
from loadtest.scenario import Found, Session
from loadtest.targets import Goal
from loadtest.verdict import Check, at_least, at_most, equal, shown, toward
from loadtest.workflows import model_call

REAL = Numbers((1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000))
MODELLED = Numbers((1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000))
BURSTS = Numbers((1_000, 10_000, 100_000, 1_000_000))
QUICK = {
    "real": Numbers((1, 4, 16, 64)),
    "modelled": Numbers((1, 100, 1_000, 10_000)),
    "burst_runs": Numbers((1_000, 10_000, 100_000)),
}

CALL_MS = 500
"""A run is one call that takes so long (± 25 %), as in the scenario `workers`."""
WAITING: Mapping[str, Any] = {
    "name": "load-waiting",
    "steps": {
        "before": {"task": "core.echo"},
        "pause": {"wait": {"for": "30s"}, "needs": ["before"]},
        "after": {"task": "core.echo", "needs": ["pause"]},
    },
}
"""Suspends once."""
WIDE = Deployment(slot_shards=64, index_shards=64, due_shards=64, warm_writes=1e6, maximum_concurrency=5)
"""No limit is in the way: what a run takes is learned there."""
CALIBRATING_RUNS = 400
CALLS_A_RUN = 6
"""Of a worker process for a run of one call: two receives, two puts, an update, a delete."""

THOUSAND = 1_000
EFFICIENCY = 0.95
RATE_TOLERANCE = 0.05
STRAINED_TOLERANCE = 0.15
LADDER = 10_000.0


def scale(
    session: Session,
    *,
    real: Annotated[
        Numbers, "Worker processes of the real code, one level after the other; the first is the one."
    ] = REAL,
    modelled: Annotated[Numbers, "Workers of the model, likewise."] = MODELLED,
    burst_runs: Annotated[Numbers, "Runs of bursts."] = BURSTS,
) -> Found:
    """All claims are on virtual time: this machine's speed is in none but through what a call computes."""
    _check_whole(real, modelled, burst_runs)
    call_seconds = _call_seconds(session)
    document = model_call(CALL_MS)
    processes, functions, waiting = _profiles(document, call_seconds)
    session.recorder.row(phase="profile", processes=asdict(processes), functions=asdict(functions))
    per_worker = 1 / processes.turn_seconds
    sizes = {
        f"sized for {count:,} workers": sized(processes, count * per_worker, submitted=True, base=shipped())
        for count in (THOUSAND, 10 * THOUSAND)
    }
    enough, checks = next(iter(sizes.values())), []
    levels, found = _real(session, document, enough, processes, real, call_seconds)
    checks += found
    of_model = {
        name: {str(int(count)): _model(session, name, processes, deployment, int(count)) for count in modelled}
        for name, deployment in {"as shipped": shipped(), **sizes}.items()
    }
    checks += _thousand(of_model, processes)
    hard, found = _strained(session, document, processes, functions, call_seconds)
    checks += found
    drains, found = _bursts(session, functions, burst_runs)
    checks += found
    swept = sweeps(functions, waiting)
    steps = ladder(functions, shipped(), target=LADDER)
    for step in steps:
        session.recorder.row(phase="ladder", changed=step.changed, **asdict(step.ceiling))
    shards, found = _needs(session, functions, waiting)
    checks += found
    checks += _ceilings(session, functions)
    return Found(
        figures={
            "call_processor_ms": 1_000 * call_seconds,
            "turn_seconds": {"process": processes.turn_seconds, "batch": functions.turn_seconds},
            "writes_a_run": {kind.value: count for kind, count in functions.units(submitted=True).items()},
            "shipped": {setting: getattr(shipped(), setting) for setting in SETTINGS},
            "sizes": sizes,
            "real": levels,
            "model": of_model,
            "strained": hard,
            "bursts": drains,
            "sweeps": swept,
            "ladder": [{"changed": step.changed, **asdict(step.ceiling)} for step in steps],
            "shards": shards,
        },
        checks=checks,
    )


def _check_whole(*lists: Numbers) -> None:
    """Raises ValueError for workers or runs that are no whole number."""
    if wrong := [number for numbers in lists for number in numbers if number != int(number)]:
        raise ValueError(f"workers and runs are whole numbers, not {wrong[0]:g}")


def _call_seconds(session: Session) -> float:
    """What a call takes of a processor: boto3's part, and the engine's as measured here and now."""
    runs = 100 if session.quick else 500
    worked(model_call(0), 20)
    engine = worked(model_call(0), runs).processor_seconds / runs / CALLS_A_RUN
    session.recorder.row(phase="processor", engine_seconds_a_call=engine, boto3_seconds_a_call=CALL_PROCESSOR_SECONDS)
    return engine + CALL_PROCESSOR_SECONDS


def _profiles(document: Mapping[str, Any], call_seconds: float) -> tuple[Profile, Profile, Profile]:
    """What the model knows of the code: runs of worker processes, runs in batches, runs that suspend."""
    workers = 4
    alone = by_processes(document, WIDE, workers=workers, runs=CALIBRATING_RUNS, call_seconds=call_seconds)
    batches = by_functions(document, WIDE, runs=CALIBRATING_RUNS, call_seconds=call_seconds)
    waiting = by_processes(WAITING, WIDE, workers=workers, runs=40, call_seconds=call_seconds)
    functions = of_functions(batches)
    suspended = replace(of_processes(waiting, workers), turn_seconds=functions.turn_seconds)
    return of_processes(alone, workers), functions, suspended


def _real(
    session: Session,
    document: Mapping[str, Any],
    deployment: Deployment,
    profile: Profile,
    counts: Numbers,
    call_seconds: float,
) -> tuple[dict[str, Level], list[Check]]:
    levels: dict[str, Level] = {}
    missing, apart = 0, 0.0
    alone: float | None = None
    for count in map(int, counts):
        session.say(f"the real code, {count} workers")
        level, played = real_level(document, deployment, count, alone=alone, call_seconds=call_seconds)
        if alone is None:
            alone = level.rate / count
        model = same_level(profile, deployment, count)
        missing += model.runs - len(played.courses)
        apart = max(apart, abs(model.rate / level.rate - 1))
        levels[str(count)] = level
        facts = {"model_rate": model.rate, "processor_seconds": played.real_seconds}
        session.recorder.row(phase="real", **asdict(level), **facts)
    last = levels[str(int(counts[-1]))]
    return levels, [
        equal("runs of the real code that did not end", missing, 0),
        *toward(
            Goal.SCALING,
            at_least(f"efficiency of the real code, {last.workers:,} workers", last.efficiency, EFFICIENCY),
        ),
        at_most("model beside real code: rate over workers, largest difference", apart, RATE_TOLERANCE),
    ]


def _model(session: Session, name: str, profile: Profile, deployment: Deployment, workers: int) -> Level:
    session.say(f"the model, {name}, {workers} workers")
    level = model_level(profile, deployment, workers)
    session.recorder.row(phase="model", deployment=name, **asdict(level))
    return level


def _thousand(levels: Mapping[str, Mapping[str, Level]], profile: Profile) -> list[Check]:
    checks: list[Check] = []
    for name, of_name in levels.items():
        level = of_name.get(str(THOUSAND))
        if level is None:
            continue
        what = f"efficiency of {THOUSAND:,} workers, {name}"
        if name.startswith("sized"):
            checks += toward(Goal.SCALING, at_least(what, level.efficiency, EFFICIENCY))
        else:
            bend = ceiling(replace(profile, turn_seconds=1e-9), shipped(), submitted=False)
            text = (
                f"{level.efficiency:.3g}: {level.binding} binds from {bend.rate * profile.turn_seconds:.0f} workers on"
            )
            checks.append(shown(what, text))
    return checks


def _strained(
    session: Session, document: Mapping[str, Any], processes: Profile, functions: Profile, call_seconds: float
) -> tuple[dict[str, Any], list[Check]]:
    found, checks = {}, []
    for strain in strains(quick=session.quick):
        session.say(f"model beside real code: {strain.name}")
        told = strained(strain, document, processes=processes, functions=functions, call_seconds=call_seconds)
        found[strain.name] = told
        session.recorder.row(phase="strained", **asdict(told))
        text = f"{told.model_seconds:.1f} s beside {told.real_seconds:.1f} s ({told.binding})"
        checks.append(shown(f"model beside real code: {strain.name}", text))
    apart = max(told.difference for told in found.values())
    checks.append(at_most("the same, largest difference of the mean time to an end", apart, STRAINED_TOLERANCE))
    return found, checks


def _bursts(session: Session, profile: Profile, sizes: Numbers) -> tuple[dict[str, Any], list[Check]]:
    found: dict[str, dict[str, bursts.Drain]] = {}
    checks = []
    for name, deployment in bursts.deployments(profile).items():
        found[name] = {}
        for runs in map(int, sizes):
            if name == bursts.WIDER and runs > bursts.MOST_WIDER:
                continue
            session.say(f"a burst of {runs:,}, {name}")
            told = bursts.drain(profile, deployment, runs)
            found[name][str(runs)] = told
            session.recorder.row(phase="burst", deployment=name, **asdict(told))
        text = f"{told.drain_seconds:.0f} s, {told.rate:.0f} runs/s; {told.binding}"
        checks.append(shown(f"drain of a burst of {told.runs:,}, {name}", text))
    return found, checks


def _needs(session: Session, profile: Profile, waiting: Profile) -> tuple[dict[str, Any], list[Check]]:
    """Shards for a rate, and the model's word that the planned number carries it; what fewer than just do carry."""
    told, found, checks = needs(profile, waiting), {}, []
    ample = replace(
        sized(waiting, 2 * RATE, submitted=True, base=shipped()), maximum_concurrency=1_000, account_concurrency=3_000
    )
    for setting, need in told.items():
        of = waiting if setting == "due_shards" else profile
        few = carried(of, with_shards(ample, setting, need.just - 1), RATE) if need.just > 1 else None
        enough = carried(of, with_shards(ample, setting, need.planned), RATE)
        found[setting] = {**asdict(need), "planned_carries": enough, "too_few_carry": few}
        session.recorder.row(phase="shards", setting=setting, **asdict(need), refused_share=enough.refused_share)
        text = f"{need.just} just do, plan {need.planned} ({need.writes_a_run:g} writes a run)"
        checks.append(shown(f"{setting} for {RATE:,.0f} submits/s", text))
        checks.append(at_most(f"{setting} = {need.planned}: share refused at that rate", enough.refused_share, 0.0))
    return found, checks


def _ceilings(session: Session, profile: Profile) -> list[Check]:
    """What the arithmetic calls a ceiling, the model comes close to."""
    shares = []
    for deployment in (shipped(), bursts.deployments(profile)[bursts.SIZED]):
        offered = SHARE * ceiling(profile, deployment).rate
        told = carried(profile, deployment, offered)
        shares.append(told.rate / offered)
        session.recorder.row(phase="ceiling", **asdict(told))
    what = f"model: the least part carried of {SHARE:.0%} of a ceiling"
    return [
        at_least(what, min(shares), 0.97),
        shown(
            "runs/s for long, as shipped",
            f"{ceiling(profile, shipped()).rate:.0f}: {ceiling(profile, shipped()).binding}",
        ),
    ]
