"""Saying what a task does to the world outside its run, so that `fanfold explore` can count it.

In a worker nobody listens, and `effect` costs a look at a context variable.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

Recorder = Callable[[str, str | None], None]

RECORDER: Final[ContextVar[Recorder | None]] = ContextVar("recorder", default=None)
"""Who listens to the effects of the attempt at hand: the explorer, or nobody."""


def effect(name: str, *, key: str | None = None) -> None:
    """Says that the running attempt acts on the world now: a payment, a mail, a row somewhere.

    To be called where the outside service is called (in its client, say, or in the fake that stands for it).
    `key` is the idempotency key the service was given: it does what it is asked for under one key only
    once, so a repetition under the same key is none. Without a key every call counts.
    """
    recorder = RECORDER.get()
    if recorder is not None:
        recorder(name, key)
