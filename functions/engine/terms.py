"""The numbers the engine decides by: what the shell takes from the settings and from its own situation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

MAX_DELAY = timedelta(seconds=900)
"""SQS delays a message by at most 15 minutes; what is due later needs no message until then (R4)."""

ENVELOPE_LIFE = timedelta(days=14)
"""An envelope older than this creates no row: SQS keeps a message at most 14 days (R2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Durations the rules depend on, and `horizon`: no attempt may still run then (None: no limit).

    `skew` is how far two honest clocks may differ; `suspend_after` is the longest wait a worker
    sits out holding the run; `max_crashes` is how many crashes in a row, or interruptions of one
    step, end a run; `retention` is how long an ended run's row lives.
    """

    lease: timedelta
    skew: timedelta
    suspend_after: timedelta
    max_crashes: int
    retention: timedelta
    horizon: datetime | None = None
