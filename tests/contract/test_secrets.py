"""What every store of secrets promises."""

from __future__ import annotations

import asyncio

from tests.contract.backends import Backend


async def test_a_secret_is_what_was_drawn_first(backend: Backend) -> None:
    secrets = backend.secrets()
    assert await secrets.shared("stream", drawn="one") == "one"
    assert await secrets.shared("stream", drawn="two") == "one"
    assert await secrets.shared("other", drawn="two") == "two"


async def test_of_many_who_draw_at_once_one_counts_for_all(backend: Backend) -> None:
    secrets = backend.secrets()
    answers = await asyncio.gather(*(secrets.shared("stream", drawn=f"number {n}") for n in range(8)))
    assert len(set(answers)) == 1
