"""What a child process says through a pipe: at short intervals that its loop runs, and a word at its end."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

BEAT = b"."
MOST_BYTES = 64
"""Of a child's last word no more is kept."""


class Pulse:
    """The parent's end. The child has `first_seconds` for its first beat, then `seconds` for each further one."""

    def __init__(self, *, first_seconds: float, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._read, self.child_end = os.pipe()
        os.set_blocking(self._read, False)
        self._listening = False
        self._silent = asyncio.Event()
        self._word = b""
        self._timer = self._loop.call_later(first_seconds, self._judge)

    def listen(self) -> None:
        """The child has its end: from now on its beats are heard."""
        os.close(self.child_end)
        self._listening = True
        self._loop.add_reader(self._read, self._hear)

    async def until_silent(self) -> None:
        """Returns when nothing was heard for too long."""
        await self._silent.wait()

    def last_word(self) -> str:
        """What a child that has ended said at last; "" where it said nothing."""
        with suppress(OSError):
            self._hear()
        return self._word.decode("ascii", "replace")

    def close(self) -> None:
        """Listen no more."""
        self._timer.cancel()
        if self._listening:
            self._loop.remove_reader(self._read)
        else:
            os.close(self.child_end)
        os.close(self._read)

    def _hear(self) -> bool:
        try:
            beats = os.read(self._read, 1024)
        except BlockingIOError:
            return False
        if not beats:  # the child has closed its end; whether it ends, too, is to be seen
            self._loop.remove_reader(self._read)
            return False
        self._word = (self._word + beats.replace(BEAT, b""))[-MOST_BYTES:]
        self._timer.cancel()
        self._timer = self._loop.call_later(self._seconds, self._judge)
        return True

    def _judge(self) -> None:
        # A parent that stood still itself has not heard what was said meanwhile.
        if not self._hear():
            self._silent.set()


async def beat(child_end: int, *, every_seconds: float) -> None:
    """The child's end: beat for as long as the loop runs."""
    while True:
        with suppress(BrokenPipeError):  # nobody listens: the parent is gone
            os.write(child_end, BEAT)
        await asyncio.sleep(every_seconds)


def say(child_end: int, word: str) -> None:
    """The child's last word."""
    with suppress(BrokenPipeError):
        os.write(child_end, word.encode("ascii"))
