"""A model that costs nothing: for demonstrations and load tests."""

from __future__ import annotations

import asyncio
import json
import random

from fanfold.engine.errors import Fail
from fanfold.engine.payload import Json
from fanfold.tasks.context import Context
from fanfold.tasks.registry import task

JITTER = 0.25
"""The latency is drawn from ± this part of the asked one."""

BYTES_PER_TOKEN = 4
"""A common rule of thumb for English text; nothing here is billed."""


@task("mock.model")
async def model(given: Json, ctx: Context) -> Json:
    """Waits as a model would, then returns `{text, usage: {input_tokens, output_tokens}}`.

    Input: an object with the optional `latency_ms` (default from the settings); the rest is the
    prompt. The latency's jitter of ±25 % follows from run and step, so that a repetition takes as long.
    """
    asked = given if isinstance(given, dict) else {"prompt": given}
    latency_ms = asked.get("latency_ms", ctx.options.get("mock_latency_ms", 0))
    if isinstance(latency_ms, bool) or not isinstance(latency_ms, int | float) or latency_ms < 0:
        raise Fail(f"latency_ms must be a number of milliseconds from 0, not {latency_ms!r}")
    prompt = {key: value for key, value in asked.items() if key != "latency_ms"}
    said = prompt.get("prompt", prompt.get("text", ""))
    shown = said if isinstance(said, str) else json.dumps(said)
    await asyncio.sleep(latency_ms / 1000 * random.Random(ctx.seed).uniform(1 - JITTER, 1 + JITTER))
    text = f"{ctx.step} has considered: {shown[:80]}"
    usage = {"input_tokens": _tokens(json.dumps(prompt)), "output_tokens": _tokens(text)}
    return {"text": text, "usage": usage}


def _tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES_PER_TOKEN)
