"""Calls made side by side, none of which is left behind when another fails.

`asyncio.gather` raises at the first error and leaves the others running: in a Lambda function their
threads would outlive the invocation (R11).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

One = TypeVar("One")
Other = TypeVar("Other")


async def together(*calls: Awaitable[One]) -> list[One]:
    """What all of these answer, in order; when all are through, the first one's error is raised."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    results: list[One] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        results.append(answer)
    return results


async def both(one: Awaitable[One], other: Awaitable[Other]) -> tuple[One, Other]:
    """What these two answer; when both are through, the first one's error is raised."""
    answer, beside = await asyncio.gather(one, other, return_exceptions=True)
    if isinstance(answer, BaseException):
        raise answer
    if isinstance(beside, BaseException):
        raise beside
    return answer, beside
