"""The same diamond as a state machine of Step Functions Standard, in turns with ours, on one emulator.

Both tell their own times: an execution from its start to its end, a run from its acceptance to its last commit. The
emulator is quicker than AWS in everything, and not in equal parts: the ratio says nothing of AWS but that ours adds
no more than a native state machine does where calls cost the same. Rates are shown, not claimed: ours are of callers
who submit and wait over HTTPS, through a function and an authorizer; a state machine is started and asked by the SDK,
and its transitions cost no calls inside the emulator.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from fanfold import Client
from lab.peers.stepfunctions import Machine, machine
from loadtest.counting import drained, tags_of
from loadtest.measure import quantiles
from loadtest.scenario import Found, Session
from loadtest.systems_under_test import Needs
from loadtest.verdict import Check, at_most, equal, shown
from loadtest.warmup import warm
from loadtest.workflows import DIAMOND

QUICK = {"runs": 20, "callers": 2, "rounds": 1}


def peer_stepfunctions(
    session: Session,
    *,
    runs: Annotated[int, "Diamonds of each, in a round and a way."] = 200,
    callers: Annotated[int, "Runs in flight at a time, where there is more than one."] = 8,
    rounds: Annotated[int, "Rounds, each of both."] = 3,
) -> Found:
    """One after the other, then several at once. Raises ValueError for any other target than the emulator."""
    if session.kind != "emulator":
        raise ValueError("a state machine needs Step Functions: --target emulator")
    seconds: dict[str, dict[str, list[float]]] = {who: {"idle": [], "busy": []} for who in ("ours", "theirs")}
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    checks: list[Check] = []
    with (
        session.target(Needs(workers=1, settings={"submits_per_minute": 0})) as target,
        target.client() as client,
    ):
        assert target.stack is not None
        with machine(target.stack) as native:
            client.apply(DIAMOND)
            warm(target, client, DIAMOND["name"], 5, callers=callers)
            for _ in range(5):
                native.run()
            ran = 5
            for number in range(rounds):
                for way, at_once in (("idle", 1), ("busy", callers)):
                    count = max(1, runs // 5) if way == "idle" else runs
                    ran += count
                    rate = _theirs(session, native, count, at_once, seconds["theirs"][way], phase=f"theirs, {way}")
                    tag = f"{session.tag}-{way}-{number}"
                    own, found = _ours(session, client, count, at_once, tag, seconds["ours"][way], phase=f"ours, {way}")
                    checks.append(found)
                    if way == "busy":
                        rates["theirs"].append(rate)
                        rates["ours"].append(own)
            checks.append(equal("executions by the service's count", native.ended(), {"SUCCEEDED": ran}))
    found_seconds = {who: {way: quantiles(of) for way, of in ways.items()} for who, ways in seconds.items()}
    ratios = {way: found_seconds["ours"][way].p50 / found_seconds["theirs"][way].p50 for way in ("idle", "busy")}
    best = max(rates["ours"]) / max(rates["theirs"])
    checks += [
        session.timed(at_most("idle: our median ÷ the state machine's", ratios["idle"], 1.0)),
        session.timed(at_most(f"{callers} at once: our median ÷ the state machine's", ratios["busy"], 1.0)),
        shown(f"{callers} at once: our best rate ÷ the state machine's", f"{best:.3g}"),
        *(shown(f"{who}, {way}", of) for who, ways in found_seconds.items() for way, of in ways.items()),
        *(shown(f"{who}: runs per second", ", ".join(f"{rate:.3g}" for rate in of)) for who, of in rates.items()),
    ]
    return Found(figures={"seconds": found_seconds, "runs_per_second": rates}, checks=checks)


def _theirs(session: Session, native: Machine, count: int, at_once: int, taken: list[float], *, phase: str) -> float:
    session.say(f"{phase}: {count} executions, {at_once} at once")

    def one() -> None:
        execution = native.run()
        taken.append(execution.seconds)
        session.recorder.row(phase=phase, status=execution.status, run_seconds=execution.seconds)

    return count / _elapsed(one, count, at_once)


def _ours(
    session: Session, client: Client, count: int, at_once: int, tag: str, taken: list[float], *, phase: str
) -> tuple[float, Check]:
    session.say(f"{phase}: {count} runs, {at_once} at once")

    def one() -> None:
        client.wait(client.submit(DIAMOND["name"], tags=tags_of(tag))["id"], timeout=60)

    elapsed = _elapsed(one, count, at_once)
    ended = drained(client, tag, within_seconds=60)
    taken += ended.seconds("created_at", "finished_at")
    session.keep(phase, ended.listed)
    return count / elapsed, equal(f"{tag.rpartition('=')[2]}: runs that succeeded", ended.count("succeeded"), count)


def _elapsed(one: Callable[[], None], count: int, at_once: int) -> float:
    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as threads:
        for ended in [threads.submit(one) for _ in range(count)]:
            ended.result()  # what it raises is raised here
    return time.monotonic() - began
