"""Tasks that move values about."""

from __future__ import annotations

from collections import Counter

from fanfold.engine.errors import Fail
from fanfold.engine.payload import Json
from fanfold.tasks.context import Context
from fanfold.tasks.registry import task


@task("core.echo")
async def echo(given: Json) -> Json:
    """Returns its input."""
    return given


@task("core.collect", wants_needs=True)
async def collect(given: Json, ctx: Context) -> Json:
    """Returns the outputs of the step's needs by name; null for one that has none. The input is not used."""
    return dict(ctx.needs)


@task("core.fold")
async def fold(given: Json) -> Json:
    """Adds up objects of numbers, key by key: `{values: [{a: 1}, {a: 2, b: 1}]}` gives `{a: 3, b: 1}`, largest first.

    Null among the values, a map's item that failed, counts for nothing. With `top` only so many keys are left.
    """
    if not isinstance(given, dict) or not isinstance(given.get("values"), list):
        raise Fail("the input must be an object with a list of objects as `values`")
    sums: Counter[str] = Counter()
    for value in given["values"]:
        if value is not None:
            sums.update(_numbers(value))
    # By size, then by name: the same values give the same order, whoever counted them.
    ordered = sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))
    return dict(ordered[: given.get("top")])


def _numbers(value: Json) -> dict[str, int]:
    if not isinstance(value, dict) or not all(isinstance(n, int | float) for n in value.values()):
        raise Fail("each of `values` must be an object of numbers, or null")
    return value
