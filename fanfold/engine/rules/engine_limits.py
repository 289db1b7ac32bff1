"""The numbers the engine decides by: what the shell takes from the settings and from its own situation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

from fanfold.engine.record.run import Failure

MAX_DELAY = timedelta(seconds=900)
"""SQS delays a message by at most 15 minutes; what is due later needs no message until then (R4)."""

MAX_LEASE = timedelta(minutes=15)
"""The longest lease that settings may ask for. What tells a clock gone wrong by a lease's end must be a number that no
setting moves: processes of other settings judge each other's leases."""

MAX_LIFE = timedelta(days=365)
"""The longest life of a run that settings may allow, pauses and redrives included (R15)."""

KEPT_FOR = MAX_LIFE + timedelta(days=30)
"""How long what a run's record names beside it is kept: segments, records of maps, payloads. No setting moves it, for
runs that were accepted under another one go on."""

ENVELOPE_LIFE = timedelta(days=14)
"""An envelope older than this creates no row: SQS keeps a message at most 14 days (R2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Durations the rules depend on, and `stop_before`: no attempt may still run then (None: no limit).

    `skew` is how far two honest clocks may differ; `suspend_after` is the longest wait a worker
    sits out holding the run; `max_crashes` is how many crashes in a row, or interruptions of one
    step, end a run; `retention` is how long an ended run's row lives, `max_life` the longest a run
    goes on after its acceptance, however often it is paused or redriven (R15). A run's output has at most
    `max_output_bytes` of JSON; the expressions of one step read at most `max_read_bytes` of payloads kept beside the
    record, and make no larger input. A map has at most `max_map_items`;
    one of fewer than `inline_map_items` stays with its worker, and elsewhere no batch has more than
    `map_batch` items. `fan_out` has the classes that can map elsewhere, and the longest attempt at an item, in
    seconds, there. `missing` has the tasks that this worker can't call, and why: a step of such a task is put off, and
    fails only when it was put off for `missing_for`. `longest_step` is the longest attempt, in seconds, for which a
    worker with a `stop_before` ever has time, by class. `stopping` says that the worker was told to stop, and does not
    merely run out of time.
    """

    lease: timedelta
    skew: timedelta
    suspend_after: timedelta
    max_crashes: int
    retention: timedelta
    max_life: timedelta = MAX_LIFE
    stop_before: datetime | None = None
    max_output_bytes: int = 4_000_000
    max_read_bytes: int = 40_000_000
    max_map_items: int = 10_000
    inline_map_items: int = 50
    map_batch: int = 25
    fan_out: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    missing: Mapping[str, Failure] = field(default_factory=lambda: MappingProxyType({}))
    missing_for: timedelta = timedelta(days=3)
    longest_step: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    stopping: bool = False
