"""The order to stop: it reaches this process whenever it comes, and no process that was forked from it.

Importing this module hangs the hook that a forked child runs; it does nothing in a process that does not listen.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from types import FrameType

Default = signal.Handlers | Callable[[int, FrameType | None], object]

DEFAULTS: Mapping[signal.Signals, Default] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}
"""The signals that tell a process to stop, and what they do where nobody listens."""

_listening: list[StopSignals] = []


class StopSignals:
    """Listens for SIGTERM and SIGINT. `told` stays true once one has come, also when no loop runs to hear of it."""

    def __init__(self) -> None:
        self.told = False

    def listen(self, stop: Callable[[], object]) -> None:
        """From now on, have the running loop call `stop` for each. Only in the main thread."""
        loop = asyncio.get_running_loop()
        for number in DEFAULTS:
            loop.add_signal_handler(number, stop)  # wakes the loop
            signal.signal(number, self._note)  # takes effect at once
            signal.siginterrupt(number, False)
        _listening.append(self)

    def forget(self) -> None:
        """Signals do again what they do by themselves. What came until now is in `told`."""
        if self in _listening:
            _listening.remove(self)
            _restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.told = True


def _restore() -> None:
    signal.set_wakeup_fd(-1)
    for number, default in DEFAULTS.items():
        signal.signal(number, default)


def _in_child() -> None:
    # A child inherits the descriptor that wakes our loop, and handlers that only note: what is meant for the child
    # (a pool ends its processes by SIGTERM) would reach us, and not end it.
    if _listening:
        _listening.clear()
        _restore()


os.register_at_fork(after_in_child=_in_child)
