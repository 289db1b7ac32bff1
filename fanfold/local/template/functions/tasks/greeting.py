"""Tasks that greet."""

from __future__ import annotations

from typing import Any

from fanfold import Context, Fail, task


@task("greeting.compose")
async def compose(given: Any, ctx: Context) -> str:
    """A greeting for `{"name": …}`. The attempt is tried again for an exception, and not for `Fail`."""
    name = given.get("name")
    if not name:
        raise Fail("a greeting needs a name")
    return f"Hello, {name}!"
