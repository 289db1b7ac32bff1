"""Finds tasks by name, runs them on the loop, and watches them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fanfold.explore.processes import Process
from fanfold.explore.trace import Effect, Execution, Trace
from fanfold.tasks.context import Context
from fanfold.tasks.effects import RECORDER
from fanfold.tasks.registry import TaskDef, find

Allowed = Callable[[Context], str | None]
"""Returns why the record does not allow an attempt; None: it does."""


class WatchedTasks:
    """A `Find` for one process. Plain functions also run on the loop, because virtual time can't wait for threads."""

    def __init__(self, course: Trace, process: Process, allowed: Allowed) -> None:
        self._course = course
        self._process = process
        self._allowed = allowed

    def __call__(self, name: str, *, chaos: bool = False) -> TaskDef:
        """See `find`."""
        definition = find(name, chaos=chaos)

        async def watched(given: Any, ctx: Context) -> Any:
            self._process.must_live()
            self._begun(ctx)
            token = RECORDER.set(lambda effect, key: self._effect(ctx, effect, key))
            try:
                function = definition.function
                result = function(given, ctx) if definition.wants_ctx else function(given)
                return await result if inspect.isawaitable(result) else result
            finally:
                RECORDER.reset(token)

        return replace(definition, function=watched, is_async=True, wants_ctx=True)

    def _begun(self, ctx: Context) -> None:
        self._course.executions.append(
            Execution(
                step=ctx.step,
                index=ctx.index,
                attempt=ctx.attempt,
                process=self._process.name,
                complaint=self._allowed(ctx),
            )
        )

    def _effect(self, ctx: Context, name: str, key: str | None) -> None:
        self._process.affect(
            Effect(name=name, key=key, step=ctx.step, index=ctx.index, attempt=ctx.attempt, process=self._process.name)
        )
