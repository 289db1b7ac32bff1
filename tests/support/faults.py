"""Ports that fail as told: refused, unanswered (done, not done, done late), slow, dead."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fanfold.engine.errors import LimitExceeded, Throttled, Unanswered, Unavailable
from tests.support.virtual import PROCESS


class Fault(Enum):
    """What becomes of one call."""

    NONE = "none"
    THROTTLED = "refused for load"
    DOWN = "could not be asked"
    TOO_BIG = "more than an item holds"
    LOST = "not done, and no answer"
    DONE = "done, and no answer"


@dataclass(frozen=True, slots=True)
class Late:
    """No answer now, done after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Slow:
    """Done at once, answered after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hanging:
    """Done and answered after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class After:
    """Done; then this is called, and then `fault` (NONE, or DONE) is what the caller gets."""

    call: Callable[[], Any]
    fault: Fault = Fault.NONE


Plan = Fault | Late | Slow | Hanging | After
Rule = Callable[..., Plan]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that was made: when (loop time), what, with what."""

    at: float
    method: str
    args: tuple[Any, ...]


class Faulty:
    """Any port, with faults: those planned for a method come first, then what its rule says."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls: list[Call] = []
        self.dead = False
        self._plans: dict[str, deque[Plan]] = {}
        self._rules: dict[str, Rule] = {}
        self._late: set[asyncio.Task[Any]] = set()

    def plan(self, method: str, *plans: Plan) -> None:
        """The next calls of the method fail so."""
        self._plans.setdefault(method, deque()).extend(plans)

    def rule(self, method: str, rule: Rule | Plan | None) -> None:
        """From now on each call fails as the rule says of its arguments; None: no more faults."""
        if rule is None:
            self._rules.pop(method, None)
        else:
            self._rules[method] = rule if callable(rule) else lambda *_, **__: rule

    def count(self, method: str, *, since: float = 0.0) -> int:
        """How often the method was called."""
        return sum(call.method == method and call.at >= since for call in self.calls)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **given: Any) -> Any:
            if self.dead:
                raise asyncio.CancelledError
            self.calls.append(Call(asyncio.get_running_loop().time(), name, args))
            planned = self._plans.get(name)
            if planned:
                plan = planned.popleft()
            else:
                plan = self._rules[name](*args, **given) if name in self._rules else Fault.NONE
            return await self._carry_out(plan, lambda: method(*args, **given))

        return call

    async def _carry_out(self, plan: Plan, call: Callable[[], Any]) -> Any:
        match plan:
            case Fault.NONE:
                # A real call gives the loop a turn; what holds only without one is a bug.
                await asyncio.sleep(0)
                return await call()
            case Fault.THROTTLED:
                raise Throttled("refused as planned")
            case Fault.DOWN:
                raise Unavailable("down as planned")
            case Fault.TOO_BIG:
                raise LimitExceeded("dynamodb.item_bytes", "too big, as planned")
            case Fault.LOST:
                raise Unanswered("lost as planned")
            case Fault.DONE:
                await call()
                raise Unanswered("done without an answer, as planned")
            case Late(seconds):
                # On the wire it belongs to no process any more, and outlives the one that sent it.
                token = PROCESS.set("")
                task = asyncio.create_task(_later(seconds, call))
                PROCESS.reset(token)
                self._late.add(task)
                task.add_done_callback(self._late.discard)
                raise Unanswered("late as planned")
            case Slow(seconds):
                try:
                    return await call()
                finally:
                    await asyncio.sleep(seconds)
            case Hanging(seconds):
                await asyncio.sleep(seconds)
                return await call()
            case After(then, fault):
                result = await call()
                await then()
                if fault is Fault.DONE:
                    raise Unanswered("done without an answer, as planned")
                return result


async def _later(seconds: float, call: Callable[[], Any]) -> None:
    await asyncio.sleep(seconds)
    # A conditional put that comes too late is refused, and nobody hears of it.
    await asyncio.gather(call(), return_exceptions=True)
