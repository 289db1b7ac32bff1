"""Durations as people write them in a workflow document: `250ms`, `30s`, `15m`, `24h`, `7d`."""

from __future__ import annotations

import re

MAX_SECONDS = 365 * 86_400.0
"""No duration in a document is longer: a run's life is capped at a year (R15)."""
MIN_SECONDS = 0.001
"""No duration is shorter: times are kept in whole milliseconds."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
# [0-9], not \d: other scripts' digits are no duration.
_FORM = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")


def parse_duration(text: str) -> float:
    """Seconds of a duration such as `1.5h`; raises ValueError with a sentence for people."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError("a duration is a number and a unit: 250ms, 30s, 15m, 24h or 7d")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds < MIN_SECONDS:
        raise ValueError("a duration is at least 1ms")
    if seconds > MAX_SECONDS:
        raise ValueError("a duration is at most 365d")
    return round(seconds, 6)
