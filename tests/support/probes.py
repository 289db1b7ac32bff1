"""Tasks for tests on virtual time, all on the loop, and a log of what was really executed."""

from __future__ import annotations

import asyncio
import base64
import random
from dataclasses import dataclass
from typing import Any

from fanfold.engine.errors import Fail, Retry
from fanfold.tasks.context import Context
from fanfold.tasks.registry import task


@dataclass(frozen=True, slots=True)
class Seen:
    """Something an attempt did: `start`, `end`, `fail` or `cancel`, at this loop time."""

    what: str
    step: str
    attempt: int
    epoch: int
    at: float
    run: str
    index: int | None = None


_log: list[Seen] = []


def fresh_log() -> list[Seen]:
    """A new log; what is executed from now on is written there."""
    global _log
    _log = []
    return _log


@task("probe.report")
async def report(given: Any, ctx: Context) -> Any:
    """Emits `count` texts of `bytes` random characters each, all at once."""
    chance = random.Random(ctx.step)
    for _ in range(given["count"]):
        ctx.emit(base64.b64encode(chance.randbytes(given["bytes"] * 3 // 4)).decode())
    return None


@task("probe.moody")
async def moody(given: Any, ctx: Context) -> Any:
    """Returns `out`; the items 7, 8 and 23 of a map fail when they are begun for the first time."""
    before = any(seen.index == ctx.index and seen.run == ctx.run_id for seen in _log)
    at = asyncio.get_running_loop().time()
    _log.append(Seen("start", ctx.step, ctx.attempt, ctx.epoch, at, ctx.run_id, ctx.index))
    if ctx.index in (7, 8, 23) and not before:
        raise Fail("not in the mood")
    return given["out"]


@task("probe.play")
async def play(given: Any, ctx: Context) -> Any:
    """Sleeps `ms`, fails its first `fail` attempts, returns `out`.

    It fails by an ordinary exception; with `after` by Retry of that delay, with `final` by Fail.
    With `noise` it returns text made of so many random bytes, which can't be compressed.
    """
    given = given if isinstance(given, dict) else {}

    def note(what: str) -> None:
        at = asyncio.get_running_loop().time()
        _log.append(Seen(what, ctx.step, ctx.attempt, ctx.epoch, at, ctx.run_id, ctx.index))

    note("start")
    try:
        await asyncio.sleep(given.get("ms", 0) / 1000)
    except asyncio.CancelledError:
        note("cancel")
        raise
    if ctx.attempt <= given.get("fail", 0):
        note("fail")
        if given.get("final"):
            raise Fail("failed for good")
        if "after" in given:
            raise Retry("not yet", after=given["after"])
        raise RuntimeError(f"attempt {ctx.attempt} failed")
    note("end")
    if "noise" in given:
        return base64.b64encode(random.Random(ctx.step).randbytes(given["noise"])).decode()
    return given.get("out", ctx.step)


@task("probe.unhurried")
async def unhurried(given: Any, ctx: Context) -> Any:
    """Never ends by itself, and takes a second to stop."""
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(1)
