"""Tests on virtual time: `fanfold.testing.virtual_time`, and a decorator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from fanfold.testing.virtual_time import PROCESS, Stalled, VirtualClock, VirtualLoop, loop, run

__all__ = ["PROCESS", "Stalled", "VirtualClock", "VirtualLoop", "loop", "run", "virtually"]


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Makes an `async` test one that runs on virtual time."""

    @functools.wraps(test)
    def on_virtual_time(*args: Any, **given: Any) -> None:
        run(test(*args, **given))

    return on_virtual_time
