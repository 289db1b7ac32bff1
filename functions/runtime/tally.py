"""Counts and measures in this process until they are written: cheap, safe in threads, no import but the names."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Set

from functions.runtime.metrics import Metric

Series = tuple[Metric, tuple[str, ...]]
"""A metric, and the values of its dimensions but for the service's."""

_lock = threading.Lock()
_values: dict[Series, list[float]] = {}


def count(metric: Metric, value: float = 1, *, of: tuple[str, ...] = ()) -> None:
    """Adds to a counter. `of` are its dimensions' values beside the service, in their order: `(class,)`, say.

    Raises ValueError when that are too many or too few.
    """
    if len(of) != metric.own_dimensions:
        raise _mistaken(metric, of)
    series = (metric, of)
    with _lock:
        standing = _values.get(series)
        if standing is None:
            _values[series] = [value]
        else:
            standing[0] += value


def measure(metric: Metric, value: float, *, of: tuple[str, ...] = ()) -> None:
    """Sets what was measured last; as `count`."""
    if len(of) != metric.own_dimensions:
        raise _mistaken(metric, of)
    with _lock:
        _values[metric, of] = [value]


def observe(metric: Metric, value: float, *, of: tuple[str, ...] = ()) -> None:
    """Adds a value to a distribution; as `count`."""
    if len(of) != metric.own_dimensions:
        raise _mistaken(metric, of)
    with _lock:
        _values.setdefault((metric, of), []).append(value)


def taken() -> Mapping[Series, list[float]]:
    """All that came in since the last time: whoever asks has to write it."""
    global _values
    with _lock:
        values, _values = _values, {}
    return values


def holds_only(metrics: Set[Metric]) -> bool:
    """Whether all that came in since the last time is of these metrics."""
    with _lock:
        return all(metric in metrics for metric, _ in _values)


def _mistaken(metric: Metric, of: tuple[str, ...]) -> ValueError:
    return ValueError(f"{metric} has the dimensions {metric.dimensions.value}; of them were given: {of}")
