"""Tasks that move values about."""

from __future__ import annotations

from functions.engine.values import Json
from functions.tasks.context import Context
from functions.tasks.registry import task


@task("core.echo")
async def echo(given: Json) -> Json:
    """Returns its input."""
    return given


@task("core.collect", wants_needs=True)
async def collect(given: Json, ctx: Context) -> Json:
    """Returns the outputs of the step's needs by name; null for one that has none. The input is not used."""
    return dict(ctx.needs)
