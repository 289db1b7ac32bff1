"""Processes that die at a given call. Every call to a service is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from dataclasses import replace
from typing import Any, Final

from fanfold.engine.record.run import Run
from fanfold.explore.trace import Crash, Effect, Moment, Site, Trace
from fanfold.service.wiring import Services
from fanfold.testing.virtual_time import PROCESS, SeededIds, loop

LATENCY_SECONDS: Final = 0.004
"""The duration of a call to a service, so that other processes run meanwhile."""

PORTS: Final = ("runs", "queue", "slots", "blobs", "catalog", "map_records", "fan_out")


class Door:
    """Counts the calls of a try, and kills the process at the calls of its crashes.

    `changed` is set at each write of a run; `told` is the newest journal entry written so far.
    """

    def __init__(self, course: Trace, *, on_death: Callable[[Process], None], changed: asyncio.Event) -> None:
        self.course = course
        self.changed = changed
        self.open = True
        self.told = 0
        self._on_death = on_death
        self._crashes = {crash.number: crash for crash in course.crashes}

    def enter(self, process: Process, call: str, about: str, steps: tuple[str, ...]) -> Site | None:
        """Begin a call; raises CancelledError if the process dies before it. None: the call does not count."""
        process.must_live()
        if not self.open or not process.counts:
            return None
        site = Site(number=len(self.course.sites) + 1, process=process.name, call=call, about=about, steps=steps)
        self.course.sites.append(site)
        self._strike(process, site, Moment.BEFORE)
        return site

    def leave(self, process: Process, site: Site | None) -> None:
        """End a call; raises CancelledError if the process dies after it."""
        if site is not None:
            site.ended = True
            self._strike(process, site, Moment.AFTER)
        process.must_live()

    def _strike(self, process: Process, site: Site, moment: Moment) -> None:
        if process.dead or self._crashes.get(site.number) != Crash(site.number, moment):
            return
        self.course.struck.append((moment, site))
        process.kill()
        self._on_death(process)
        raise asyncio.CancelledError


class Process:
    """A process: its own view of the services, and its end. `counts`: its calls are sites of the course."""

    def __init__(self, kind: str, number: int, services: Services, door: Door, *, counts: bool = True) -> None:
        self.kind = kind
        self.name = name = f"{kind} {number}"
        self.counts = counts
        self.dead = False
        self._door = door
        self._context: Context = copy_context()
        self._context.run(PROCESS.set, name)
        ports = {name: Port(self, door, name, getattr(services, name)) for name in PORTS}
        self.services: Services = replace(services, ids=SeededIds(name), **ports)  # type: ignore[arg-type]  # each port stands for the one of its name

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in this process."""
        return self._context.run(asyncio.get_running_loop().create_task, coroutine)

    def kill(self) -> None:
        """Kill the process: it does nothing more."""
        self.dead = True
        for task in sorted(loop().tasks_of(self.name), key=hash):
            task.cancel()

    def must_live(self) -> None:
        """Stop a coroutine of a dead process."""
        if self.dead:
            raise asyncio.CancelledError

    def affect(self, effect: Effect) -> None:
        """Record an effect. The process may die before or after it, as with a call to a service."""
        key = "no key" if effect.key is None else "with a key"
        site = self._door.enter(self, f"effect {effect.name}", f"{effect.step}, {key}", (effect.step,))
        self._door.course.effects.append(effect)
        self._door.leave(self, site)


class Port:
    """A service as one process sees it."""

    def __init__(self, process: Process, door: Door, name: str, inner: Any) -> None:
        self._process = process
        self._door = door
        self._name = name
        self._inner = inner

    def __getattr__(self, method: str) -> Any:
        inner = getattr(self._inner, method)
        name, process, door = self._name, self._process, self._door

        async def call(*args: Any, **given: Any) -> Any:
            about, steps = _about(name, method, args, door.told)
            site = door.enter(process, f"{name}.{method}", about, steps)
            await asyncio.sleep(LATENCY_SECONDS)
            process.must_live()
            try:
                result = await _carried_out(name, method, inner, args, given)
            except Exception:
                door.leave(process, site)
                raise
            if (name, method) == ("runs", "put"):
                door.told = max(door.told, args[0].last_seq)
                door.changed.set()
            if site is not None and (name, method) == ("queue", "receive"):
                site.about += f": {', '.join(type(m.message).__name__.lower() for m in result) or 'nothing'}"
            door.leave(process, site)
            return result

        setattr(self, method, call)
        return call


async def _carried_out(
    name: str, method: str, inner: Callable[..., Awaitable[Any]], args: Sequence[Any], given: dict[str, Any]
) -> Any:
    if (name, method) == ("fan_out", "start"):
        # Executions of distributed maps belong to no process, and outlive the one that started them.
        token = PROCESS.set("")
        try:
            return await inner(*args, **given)
        finally:
            PROCESS.reset(token)
    return await inner(*args, **given)


def _about(name: str, method: str, args: Sequence[Any], told: int) -> tuple[str, tuple[str, ...]]:
    """A description of a call, and the steps that it concerns."""
    match name, method:
        case "runs", "put":
            return _news(args[0], told)
        case "queue", "send":
            return f"{type(args[1]).__name__.lower()} to {args[0]}", ()
        case "queue", "receive":
            return str(args[0]), ()
        case "map_records", "put" | "has" | "read":
            return args[0].step, (args[0].step,)
        case "fan_out", _:
            return args[0].step, (args[0].step,)
        case _:
            return "", ()


def _news(run: Run, told: int) -> tuple[str, tuple[str, ...]]:
    """The new journal entries of a put."""
    entries = [entry for entry in run.journal if entry.seq > told]
    words = [f"{entry.type} {entry.step}" if entry.step else str(entry.type) for entry in entries]
    steps = dict.fromkeys(entry.step for entry in entries if entry.step is not None)
    return ", ".join(words) or "the lease", tuple(steps)
