"""What the runs of a schedule do: small random workflows of one task, each of whose executions is counted outside."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fanfold.engine.errors import Fail, Retry
from fanfold.tasks.context import Context
from fanfold.tasks.registry import task
from tests.support.virtual import PROCESS

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

CURRENT: ContextVar[Simulation] = ContextVar("simulation")
"""The schedule that is being played; every task of it inherits this."""


@dataclass(slots=True)
class Execution:
    """One execution of a step's task, as it really happened."""

    process: str
    started_at: float
    end: str = ""
    ended_at: float = 0.0
    output: Any = None

    def ends(self, how: str) -> None:
        """It is over: `succeeded`, `failed`, or `cancelled` (by its timeout, too)."""
        self.end = how
        self.ended_at = asyncio.get_running_loop().time()


class Ledger:
    """Real executions, outside of any record: by run, submission, step and attempt."""

    def __init__(self) -> None:
        self.executions: dict[tuple[str, str, str, int], Execution] = {}
        self.items: dict[tuple[str, str, str, int], list[Execution]] = {}
        """Of maps' items: by run, submission, step and index. One may begin again where its end was not recorded."""

    def of_step(self, run_id: str, submission: str, step: str) -> list[Execution]:
        """The step's executions in the order of attempts."""
        found = [(key[3], e) for key, e in self.executions.items() if key[:3] == (run_id, submission, step)]
        return [execution for _, execution in sorted(found, key=lambda pair: pair[0])]

    def of_item(self, ctx: Context) -> list[Execution]:
        """The executions of the item that is worked on."""
        assert ctx.index is not None, "asked of items only"
        return self.items.setdefault((ctx.run_id, ctx.submission, ctx.step, ctx.index), [])

    @property
    def all(self) -> Iterator[tuple[str, Execution]]:
        """Every execution, and of which run."""
        yield from ((key[0], execution) for key, execution in self.executions.items())
        yield from ((key[0], execution) for key, several in self.items.items() for execution in several)


@task("sim.work")
async def work(given: Any, ctx: Context) -> Any:
    """Works `ms`; kills its process on the first `crash` attempts, fails on the first `fail`; returns its marker.

    Of a map, the items `bad` fail in their first `bad_times` executions.
    """
    simulation = CURRENT.get()
    execution = simulation.audit.started(ctx, PROCESS.get())
    try:
        await asyncio.sleep(given["ms"] / 2000)
        for n in range(given.get("emit", 0)):
            ctx.emit({"n": n})
        if ctx.attempt <= given.get("crash", 0):
            simulation.nodes[PROCESS.get()].kill(f"poison: {ctx.step}")
        await asyncio.sleep(given["ms"] / 2000)
    except asyncio.CancelledError:
        execution.ends("cancelled")
        raise
    if ctx.index in given.get("bad", ()) and len(simulation.ledger.of_item(ctx)) <= given["bad_times"]:
        execution.ends("failed")
        raise Fail("a bad item")
    if ctx.attempt <= given.get("fail", 0):
        execution.ends("failed")
        if given.get("final"):
            raise Fail("for good")
        raise Retry("not yet", after=given.get("after"))
    execution.ends("succeeded")
    execution.output = {
        "marker": given["marker"],
        "by": f"{ctx.step}#{ctx.attempt}" if ctx.index is None else f"{ctx.step}[{ctx.index}]",
        "pad": "x" * given.get("bytes", 0),
    }
    return execution.output


def document(rng: random.Random, name: str) -> dict[str, Any]:
    """A random workflow that `check` lets pass."""
    names = [f"s{n}" for n in range(rng.choice((1, 2, 2, 3, 4, 5)))]
    poison = rng.random() < 0.1
    steps: dict[str, Any] = {}
    for number, step in enumerate(names):
        given: dict[str, Any] = {"ms": rng.choice((0, 20, 500, 4_000, 30_000)), "marker": "${input.marker}"}
        body: dict[str, Any] = {"task": "sim.work", "input": given}
        needs = rng.sample(names[:number], k=min(number, rng.choice((0, 1, 1, 2))))
        if needs:
            body["needs"] = needs
            body["join"] = rng.choice(("succeeded", "succeeded", "settled", "any"))
            given["of"] = f"${{steps.{needs[0]}.output.by}}"
        if rng.random() < 0.3:
            given["bytes"] = rng.choice((10, 600, 3_000))
        if rng.random() < 0.15:
            given["emit"] = rng.choice((1, 5))
        if rng.random() < 0.18:
            given["fail"] = rng.choice((1, 1, 2, 9))
            if rng.random() < 0.3:
                given["after"] = rng.choice((0, 20, 200))
            if rng.random() < 0.2:
                given["final"] = True
        if poison and rng.random() < 0.5:
            given["crash"] = rng.choice((1, 2, 99))
        if rng.random() < 0.3:
            body["on_failure"] = "continue"
        if rng.random() < 0.5:
            body["retry"] = {"max_attempts": rng.choice((2, 3, 5)), "backoff": rng.choice(("100ms", "1s", "20s"))}
        if rng.random() < 0.2:
            body.setdefault("retry", {})["on_interrupt"] = "fail"
        body["timeout"] = "2s" if rng.random() < 0.1 else "60s"
        steps[step] = body
    result: dict[str, Any] = {"name": name, "steps": steps, "output": {"marker": "${input.marker}"}}
    if rng.random() < 0.7:
        result["output"]["last"] = f"${{steps.{names[-1]}.output}}"
    if rng.random() < 0.1:
        result["timeout"] = rng.choice(("60s", "300s"))
    if rng.random() < 0.1:
        result["queue_timeout"] = rng.choice(("20s", "120s"))
    return result
