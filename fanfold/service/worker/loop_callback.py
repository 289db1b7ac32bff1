"""The way from a task's thread to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any


class Line:
    """The way from a task's thread to the loop, cut when the attempt ends: the loop may be closed by then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._lock = threading.Lock()
        self._open = True

    def call(self, function: Callable[..., object], *arguments: Any) -> bool:
        """Calls on the loop; False, and no call, once the line is cut."""
        if threading.get_ident() == self._loop_thread:
            if self._open:
                function(*arguments)
            return self._open
        with self._lock:
            if self._open:
                self._loop.call_soon_threadsafe(self.call, function, *arguments)
            return self._open

    def close(self) -> None:
        """From now on nothing comes through."""
        with self._lock:
            self._open = False
