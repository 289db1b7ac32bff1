"""Tasks that do damage on purpose, for tests; only where the setting `chaos` is on can a step call them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time

from fanfold.engine.errors import Fail, Retry
from fanfold.engine.payload import Json
from fanfold.tasks.context import Context
from fanfold.tasks.registry import task


@task("chaos.sleep")
async def sleep(given: Json, ctx: Context) -> Json:
    """Sleeps `ms` milliseconds on the loop and returns its input; with `ignore_cancel` even when cancelled."""
    time_of = asyncio.get_running_loop().time
    ends_at = time_of() + _number(given, "ms", 0) / 1000
    while (left := ends_at - time_of()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            if not _flag(given, "ignore_cancel"):
                raise
    return given


@task("chaos.block")
def block(given: Json, ctx: Context) -> Json:
    """Sleeps `ms` milliseconds in a thread and returns its input; with `ignore_cancel` it can't be stopped."""
    ends_at = time.monotonic() + _number(given, "ms", 0) / 1000
    stubborn = _flag(given, "ignore_cancel")
    while (left := ends_at - time.monotonic()) > 0 and (stubborn or not ctx.cancelled):
        time.sleep(left if stubborn else min(left, 0.02))
    return given


@task("chaos.fail")
async def fail(given: Json, ctx: Context) -> Json:
    """Fails its first `times` attempts (default: all), then returns its input.

    `retryable` (default true) says whether by `Retry` or by `Fail`.
    """
    if ctx.attempt <= _number(given, "times", float("inf")):
        message = f"chaos.fail, attempt {ctx.attempt}"
        if _flag(given, "retryable", default=True):
            raise Retry(message)
        raise Fail(message)
    return given


@task("chaos.crash")
async def crash(given: Json, ctx: Context) -> Json:
    """Kills its process by SIGKILL on its first `times` attempts (default: all), then returns its input."""
    if ctx.attempt <= _number(given, "times", float("inf")):
        os.kill(os.getpid(), signal.SIGKILL)
    return given


@task("chaos.output")
async def output(given: Json, ctx: Context) -> Json:
    """Returns a string that is `bytes` bytes long as JSON, its two quotes included."""
    return "x" * max(0, int(_number(given, "bytes", 0)) - 2)


@task("chaos.emit")
async def emit(given: Json, ctx: Context) -> Json:
    """Emits `{"n": 1}` to `{"n": count}`, one every `every_ms` milliseconds, and returns `{"count": …}`."""
    count = int(_number(given, "count", 1))
    for n in range(1, count + 1):
        ctx.emit({"n": n})
        await asyncio.sleep(_number(given, "every_ms", 0) / 1000)
    return {"count": count}


@task("chaos.effect")
async def effect(given: Json, ctx: Context) -> Json:
    """Appends `{name, run, step, attempt, epoch}` as one line to the ledger, so that a test can count real executions.

    With `ms` it sleeps so long before, with `after_ms` after it. Returns the line it wrote.
    """
    ledger = ctx.options.get("ledger")
    if not ledger:
        raise Fail("chaos.effect needs a ledger file: the setting `ledger`")
    name = given.get("name", ctx.step) if isinstance(given, dict) else ctx.step
    line = {"name": name, "run": ctx.run_id, "step": ctx.step, "attempt": ctx.attempt, "epoch": ctx.epoch}
    await asyncio.sleep(_number(given, "ms", 0) / 1000)
    _append(str(ledger), json.dumps(line).encode() + b"\n")
    await asyncio.sleep(_number(given, "after_ms", 0) / 1000)
    return line


def _append(path: str, line: bytes) -> None:
    """One write with O_APPEND: lines of many processes come one after the other, whole."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def _number(given: Json, key: str, default: float) -> float:
    value = given.get(key, default) if isinstance(given, dict) else default
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise Fail(f"{key} must be a number from 0, not {value!r}")
    return float(value)


def _flag(given: Json, key: str, *, default: bool = False) -> bool:
    value = given.get(key, default) if isinstance(given, dict) else default
    if not isinstance(value, bool):
        raise Fail(f"{key} must be true or false, not {value!r}")
    return value
