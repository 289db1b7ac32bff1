"""Where the processor's time goes: the engine, the worker function or the API under cProfile, per run.

The profiler counts by the processor's clock: waiting is no part of it. It makes calls of Python functions dearer than
they are: shares are hints, ratios are measured without it.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from fanfold.adapters.aws.calls import Client, translated
from fanfold.service.aws_clients import Aws
from fanfold.service.settings import Settings
from fanfold.service.telemetry.reporting import configure
from fanfold.service.wiring import services
from loadtest.access import endpoint_of, session_of
from loadtest.aws_meter import Meter
from loadtest.engine import worked
from loadtest.invoking import Bucket, Functions, Watch
from loadtest.systems_under_test import Needs, opened
from loadtest.workflows import DIAMOND

AT_ONCE = 10
"""Runs that share an invocation of the worker, as the mappings give them."""
WARM_UP = 20

_Place = tuple[str, int, str]
"""A function: its file, line and name."""


class What(StrEnum):
    """What can be profiled."""

    ENGINE = "engine"
    WORKER = "worker"
    API = "api"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Microseconds and calls of a run in a function or a part of the code."""

    name: str
    microseconds: float
    calls: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a profile says per run. A built-in function's time is its caller's part's."""

    runs: int
    microseconds: float
    parts: tuple[Row, ...]
    functions: tuple[Row, ...]


class _OneThread(Aws):
    """Calls AWS where it is asked to, and not in a thread: the profiler sees all of it, and nothing is done beside."""

    async def __call__(self, client: Client, operation: str, /, **parameters: Any) -> Any:
        """See `Call`."""
        with translated():
            return self._invoke(client, operation, parameters)


def profiled(what: What, runs: int, folder: Path) -> cProfile.Profile:
    """So many diamonds under the profiler. All but the engine alone needs the emulator, whose state `folder` takes."""
    profiler = cProfile.Profile(time.process_time)
    if what is What.ENGINE:
        worked(DIAMOND, WARM_UP)
        with _on(profiler):
            worked(DIAMOND, runs)
        return profiler
    with opened("emulator", Needs(unworked=True, settings={"submits_per_minute": 0}), folder) as target:
        assert target.stack is not None
        settings = Settings.from_env(target.stack.env)
        configure(settings)
        session, endpoint = session_of(target.stack), endpoint_of(target.stack)
        with (
            closing(_OneThread(session, endpoint_url=endpoint)) as aws,
            closing(Aws(session, endpoint_url=endpoint)) as beside,
        ):
            functions = Functions(
                services(settings, aws),
                Meter(),
                beside=services(settings, beside),
                readable=Bucket(beside, settings.bucket),
            )
            asyncio.run(_carried(functions, lambda name: _on(profiler) if name == what else nullcontext(), runs))
    return profiler


async def _carried(functions: Functions, watch: Watch, runs: int) -> None:
    """Diamonds by the functions as they are invoked, watched once all are warm."""
    await functions.apply(DIAMOND)
    await functions.carry(DIAMOND["name"], runs=WARM_UP, at_once=AT_ONCE)
    functions.watch(watch)
    await functions.carry(DIAMOND["name"], runs=runs, at_once=AT_ONCE)


@contextmanager
def _on(profiler: cProfile.Profile) -> Iterator[None]:
    profiler.enable()
    try:
        yield
    finally:
        profiler.disable()


def told(statistics: pstats.Stats, runs: int, *, functions: int = 30) -> Profile:
    """The profile of so many runs; the `functions` that took most."""
    found: Mapping[_Place, Any] = statistics.stats  # type: ignore[attr-defined]  # not in its types
    total = sum(seconds for _, _, seconds, _, _ in found.values())
    parts: Counter[str] = Counter()
    for place, (_, _, seconds, _, callers) in found.items():
        if place[0] == "~":
            for caller, (_, _, within, _) in callers.items():
                parts[_part(caller[0])] += within
        else:
            parts[_part(place[0])] += seconds

    def row(name: str, seconds: float, count: float = 0) -> Row:
        return Row(name=name, microseconds=1e6 * seconds / runs, calls=count / runs, share=seconds / total)

    most = sorted(found.items(), key=lambda it: -it[1][2])[:functions]
    return Profile(
        runs=runs,
        microseconds=1e6 * total / runs,
        parts=tuple(row(name, seconds) for name, seconds in parts.most_common()),
        functions=tuple(row(_named(place), seconds, count) for place, (_, count, seconds, _, _) in most),
    )


def _part(file: str) -> str:
    """The part of the code a file belongs to: ours by room, others by package."""
    if file == "~":
        return "built in"
    if file.startswith("<"):
        return "made at import: dataclasses, and Python's own"
    parts = Path(file).with_suffix("").parts
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1]
    for package in ("functions", "fanfold"):
        if package in parts and parts[-2] != "local":
            return ".".join(parts[parts.index(package) : -1][:3])
    if "loadtest" in parts:
        return "the measurement"
    return f"Python's {parts[-2] if parts[-2] in ('asyncio', 'json', 'logging', 'http', 'email') else parts[-1]}"


def _named(place: _Place) -> str:
    file, line, name = place
    if file == "~":
        return name
    parts = Path(file).with_suffix("").parts
    return f"{'.'.join(parts[-2:])}:{line} {name}"
