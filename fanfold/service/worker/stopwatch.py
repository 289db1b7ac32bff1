"""How long at least one of several things was going on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopwatch:
    """Runs while it is in use, by one or by many at once; `monotonic` tells the time in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._users = 0
        self._since = 0.0
        self._before = 0.0

    @property
    def seconds(self) -> float:
        """How long it has run until now."""
        return self._before + (self._monotonic() - self._since if self._users else 0.0)

    @contextmanager
    def running(self) -> Iterator[None]:
        """It runs within."""
        if self._users == 0:
            self._since = self._monotonic()
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                self._before += self._monotonic() - self._since
