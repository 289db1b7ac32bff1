"""What a task knows of the run that called it, and what it can say while it works."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fanfold.engine.payload import Json, dump_payload

MAX_EMIT_BYTES = 32_000
"""One emitted value as JSON: it goes into the journal, a batch of them into one write of at most 256 KB (R8)."""


def _nowhere(data: Json) -> None:
    """Where emitted values go when nobody listens, as in a task's own unit test."""


def _endless() -> float:
    return float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One attempt, as its task sees it. Safe to use from any thread.

    `attempt` counts the executions of the step from 1, `epoch` the claims of the run. In a map `index` is
    the item's, and `attempt` counts the executions of the item in one worker. `needs` holds the
    outputs of the step's needs by name, for tasks registered with `wants_needs` (none in a map).
    `options` are facts of the deployment that built-in tasks use (the chaos ledger's path, say).
    All that is not said has a default, so that a test can build one.
    """

    run_id: str
    step: str
    index: int | None = None
    tenant: str = ""
    submission: str = ""
    attempt: int = 1
    epoch: int = 1
    needs: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    options: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    emitter: Callable[[Json], None] = _nowhere
    time_left: Callable[[], float] = _endless
    cancellation: threading.Event = field(default_factory=threading.Event)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this step (or item) of this run, and for no other: give it to services."""
        return f"{self.run_id}:{self.submission}:{self._work}"

    @property
    def seed(self) -> int:
        """A 64-bit number that follows from run and step (or item): jitter that a repetition repeats."""
        return int.from_bytes(hashlib.sha256(f"{self.run_id}/{self._work}".encode()).digest()[:8])

    @property
    def _work(self) -> str:
        return self.step if self.index is None else f"{self.step}:{self.index}"

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this attempt any more (run cancelled or lost, step timed out): stop soon.

        An `async` task is cancelled besides; a plain function has only this. One that does not
        stop within seconds costs its worker process.
        """
        return self.cancellation.is_set()

    def remaining_seconds(self) -> float:
        """Seconds until the step's timeout, at least 0."""
        return max(0.0, self.time_left())

    def emit(self, data: Json) -> None:
        """Says something about progress: it goes into the run's journal, batched at most once a second.

        The value is copied. Raises ValueError for what is no JSON or over 32,000 bytes of it.
        After the attempt has ended it does nothing.
        """
        try:
            encoded = dump_payload(data)
        except TypeError as error:
            raise ValueError(f"an emitted value must be JSON: {error}") from error
        if len(encoded) > MAX_EMIT_BYTES:
            raise ValueError(f"an emitted value may have {MAX_EMIT_BYTES} bytes of JSON, not {len(encoded)}")
        self.emitter(json.loads(encoded))
