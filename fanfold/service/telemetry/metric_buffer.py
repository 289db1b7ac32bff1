"""Counts and measures in this process until they are written: cheap, safe in threads, no import but the names.

Each series has a list of what it was told, which stays: what is told is appended, and taken from the list's front.
Both are one step for other threads, so nothing locks and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set

from fanfold.service.telemetry.metrics import Metric

Series = tuple[Metric, tuple[str, ...]]
"""A metric, and the values of its dimensions but for the service's."""

_Told = dict[Series, list[float]]

_counts: _Told = {}
_measures: _Told = {}
_distributions: _Told = {}


def count(metric: Metric, value: float = 1, *, of: tuple[str, ...] = ()) -> None:
    """Adds to a counter. `of` are its dimensions' values beside the service, in their order: `(class,)`, say.

    Raises ValueError when that are too many or too few.
    """
    try:
        _counts[metric, of].append(value)
    except KeyError:
        _new(_counts, metric, of).append(value)


def measure(metric: Metric, value: float, *, of: tuple[str, ...] = ()) -> None:
    """Sets what was measured last; as `count`."""
    _new(_measures, metric, of).append(value)


def observe(metric: Metric, value: float, *, of: tuple[str, ...] = ()) -> None:
    """Adds a value to a distribution; as `count`."""
    try:
        _distributions[metric, of].append(value)
    except KeyError:
        _new(_distributions, metric, of).append(value)


def counter(metric: Metric, *, of: tuple[str, ...] = ()) -> Callable[[float], None]:
    """A function that adds to a counter, for where it is done at each call of AWS; as `count`."""
    return _new(_counts, metric, of).append


def taken(but: Set[Metric] = frozenset()) -> Mapping[Series, list[float]]:
    """All that came in since the last time, `but` what can wait: whoever asks has to write it."""
    values: dict[Series, list[float]] = {}
    for series, told in _drained(_counts, but):
        values[series] = [sum(told)]
    for series, told in _drained(_measures, but):
        values[series] = told[-1:]
    for series, told in _drained(_distributions, but):
        values[series] = [*values.get(series, ()), *told]
    return values


def _new(kind: _Told, metric: Metric, of: tuple[str, ...]) -> list[float]:
    """A series' list, which is made unless another thread just did."""
    if len(of) != metric.own_dimensions:
        raise ValueError(f"{metric} has the dimensions {metric.dimensions.value}; of them were given: {of}")
    return kind.setdefault((metric, of), [])


def _drained(kind: _Told, but: Set[Metric]) -> Iterator[tuple[Series, list[float]]]:
    """What each series was told, if anything: it is gone from its list afterwards."""
    for series, told in tuple(kind.items()):
        if told and series[0] not in but:
            values = told[:]
            del told[: len(values)]
            yield series, values
