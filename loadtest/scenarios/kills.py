"""Workers killed with SIGKILL on both sides of every step's end, while runs go on: nothing is lost, nothing done twice.

The runs are judged by what is left: rows, journals, and the ledger of what was really executed. `make faults` does
more to the same stack: functions, freezes, purges, restarts.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from fanfold import Client
from fanfold.local.local_stack import LocalStack
from loadtest.counting import drained, ledgered, tags_of
from loadtest.scenario import Found, Session
from loadtest.systems_under_test import Needs, workers
from loadtest.targets import Goal
from loadtest.verdict import Check, at_least, equal, shown, toward
from loadtest.warmup import warm

QUICK = {"runs": 14}

CHAIN = ("one", "two", "three", "four")
PACE = {"ms": 400, "after_ms": 400}
"""Of each step: time enough to be met on both sides of its end."""
CONCURRENCY = 16
LOOK_SECONDS = 0.03
TIMEOUT_SECONDS = 120.0


class Moment(Enum):
    """Where at a step's end its worker is killed."""

    DONE = "its effect has happened, its success is not recorded"
    RECORDED = "its success is recorded, and nothing that comes after it"


SLOTS = tuple(itertools.product(CHAIN, Moment))[:-1]
"""The last step's success is the run's, in one write: nothing lies between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What journals and ledger say together of all runs."""

    interrupted: int
    repeated: int
    unexplained: int
    gaps: int


def kills(
    session: Session,
    *,
    runs: Annotated[int, "Runs of a chain of four, a seventh of them under way at each kill."] = 100,
) -> Found:
    """A kill for each side of each step's end. Raises ValueError for any other target than the emulator, and for fewer
    runs than kills."""
    if session.kind != "emulator":
        raise ValueError("kills needs processes to kill, and the ledger of a local stack: --target emulator")
    if runs < len(SLOTS):
        raise ValueError(f"a run for each kill is needed at least: {len(SLOTS)}, not {runs}")
    with session.target(Needs(unworked=True)) as target, target.client() as client:
        assert target.stack is not None
        assert target.ledger is not None
        name = client.apply(_document())["name"]
        killed = 0
        with _crew(target.stack, session.scratch) as start:
            start()
            warm(target, client, name, 2, {"ms": 10}, callers=1)
            start()  # another, so that work goes on while one is dead
            for number, (step, moment) in enumerate(SLOTS):
                share = runs * (number + 1) // len(SLOTS) - runs * number // len(SLOTS)
                session.say(f"{share} runs; a worker is killed at {step}: {moment.value}")
                ids = _submitted(client, name, session.tag, share)
                pid = _met(client, target.ledger, ids[0], step, moment)
                os.kill(pid, signal.SIGKILL)
                start()
                killed += 1
                session.recorder.row(phase="kill", step=step, moment=moment.name, run=ids[0], pid=pid)
            ended = drained(client, session.tag, within_seconds=TIMEOUT_SECONDS + 2 * runs)
        events = {row["id"]: list(client.events(row["id"], follow=False)) for row in ended.listed}
        executions = [line for line in ledgered(target.ledger) if line["run"] in events]
    session.keep("under kills", ended.listed)
    told = judged(events, executions)
    checks: list[Check] = [
        *toward(Goal.KILLS, equal("runs that succeeded", ended.count("succeeded"), runs), n=runs),
        equal("rows in all", ended.total, runs),
        equal("workers killed", killed, len(SLOTS)),
        *toward(Goal.KILLS, equal("executions of a step whose end was recorded", told.repeated, 0), n=len(executions)),
        equal("executions again that no interruption in the journal explains", told.unexplained, 0),
        equal("journals with a gap", told.gaps, 0),
        at_least("attempts that were cut off", told.interrupted, 1),
        shown("executions of steps", f"{len(executions)} of {len(CHAIN) * runs} steps"),
    ]
    return Found(figures={"runs": runs, "killed": killed, "interrupted": told.interrupted}, checks=checks)


def judged(events: Mapping[str, list[Any]], executions: list[Mapping[str, Any]]) -> Told:
    """What the journals, by run, and the ledger's lines say: every execution has an attempt of its own."""
    succeeded: dict[tuple[str, str], int] = {}
    interrupted: Counter[tuple[str, str]] = Counter()
    gaps = 0
    for run_id, journal in events.items():
        gaps += [event["seq"] for event in journal] != list(range(1, len(journal) + 1))
        for event in journal:
            if event["type"] == "step.succeeded":
                succeeded[run_id, event["step"]] = event["attempt"]
            elif event["type"] == "step.interrupted":
                interrupted[run_id, event["step"]] += 1
    made = Counter((line["run"], line["step"]) for line in executions)
    return Told(
        interrupted=interrupted.total(),
        repeated=sum(line["attempt"] > succeeded[line["run"], line["step"]] for line in executions),
        unexplained=sum(max(0, count - 1 - interrupted[step]) for step, count in made.items()),
        gaps=gaps,
    )


def _document() -> Mapping[str, Any]:
    steps: dict[str, Any] = {}
    for before, name in zip((None, *CHAIN), CHAIN, strict=False):
        needs = {} if before is None else {"needs": [before]}
        steps[name] = {"task": "chaos.effect", "input": "${input}", "retry": {"max_attempts": 20}, **needs}
    return {"name": "load-chain", "steps": steps}


def _submitted(client: Client, workflow: str, tag: str, count: int) -> list[str]:
    return [client.submit(workflow, PACE, tags=tags_of(tag))["id"] for _ in range(count)]


def _met(client: Client, ledger: Path, run_id: str, step: str, moment: Moment) -> int:
    """The process that holds a run, at that moment of that step. Raises TimeoutError when it is never met there."""
    ends_at = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < ends_at:
        if moment is Moment.DONE:
            there = any(line["run"] == run_id and line["step"] == step for line in ledgered(ledger))
        else:
            state = client.get(run_id)["steps"].get(step)
            there = state is not None and state["status"] == "succeeded"
        if there:
            claims = [event for event in client.events(run_id, follow=False) if event["type"] == "run.claimed"]
            return int(claims[-1]["worker"].rpartition(":")[2])
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"{run_id} was not met at {step} within {TIMEOUT_SECONDS:g} s")


@contextmanager
def _crew(stack: LocalStack, scratch: Path) -> Iterator[Callable[[], None]]:
    """Gives what starts one more worker; all end with the block."""
    with ExitStack() as crew:
        numbers = itertools.count()

        def start() -> None:
            folder = scratch / f"crew-{next(numbers)}"
            folder.mkdir()
            crew.enter_context(workers(stack, 1, concurrency=CONCURRENCY, folder=folder))

        yield start
