"""Metrics as CloudWatch's embedded metric format: as few lines as can be, because each byte of a log costs.

Powertools knows the format. It is asked once for each set of series that is told together; after that only the line's
time and numbers are written anew. Its `add_metric` is not used: it takes about 15 µs a value, most of it to check units
and names, which are checked once, by a test.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final

from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider

from fanfold.service.telemetry.metric_buffer import Series
from fanfold.service.telemetry.metrics import NAMESPACE, Dimensions

MAX_VALUES: Final = 100
"""Values of one metric in one line (embedded metric format specification, MetricDefinition)."""

_FORMS: Final = 256
"""Sets of series whose lines are kept: more than a function tells in its life, about 1 KB each."""

_json = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_START: Final = '{"_aws":{"Timestamp":'


def lines(values: Mapping[Series, list[float]], *, service: str, by_lane: bool = True) -> Iterator[str]:
    """The lines, as JSON, that tell these values of this deployment; if not `by_lane`, lanes' values together.

    A line has a directive for each set of dimensions, and series that need different values of one dimension are in
    different lines. Distributions of over 100 values go on in further ones.
    """
    if not by_lane:
        values = _without_lanes(values)
    now = time.time_ns() // 1_000_000
    while values:
        for form, told in _forms(tuple(values), service):
            numbers = {series[0]: values[series][:MAX_VALUES] for series in told}
            yield f"{_START}{now}{form},{_json(numbers)[1:]}"
        values = {series: told[MAX_VALUES:] for series, told in values.items() if len(told) > MAX_VALUES}


@lru_cache(maxsize=_FORMS)
def _forms(told: tuple[Series, ...], service: str) -> tuple[tuple[str, tuple[Series, ...]], ...]:
    """The lines that tell these series, each from behind its time to before its numbers, and which series it tells."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Series]] = {}
    for series in sorted(told):  # which line tells a series does not depend on which was told first
        metric, of = series
        groups.setdefault((metric.dimension_names[: len(of) + 1], of), []).append(series)
    packed: list[tuple[dict[str, str], list[Any], list[Series]]] = []
    for (names, of), group in groups.items():
        labels = dict(zip(names, (service, *of), strict=True))
        metrics = {metric: {"Unit": metric.unit, "Value": 0} for metric, _ in group}
        single = _format().serialize_metric_set(metrics=metrics, dimensions=labels)["_aws"]["CloudWatchMetrics"]
        for line, directives, holds in packed:
            # No metric is in two sets of dimensions, so where these agree, nothing else can clash.
            if all(line.get(name, value) == value for name, value in labels.items()):
                line |= labels
                directives += single
                holds += group
                break
        else:
            packed.append((labels, single, group))
    return tuple(
        (_json({"_aws": {"Timestamp": 0, "CloudWatchMetrics": directives}, **line})[len(_START) + 1 : -1], tuple(holds))
        for line, directives, holds in packed
    )


@cache
def _format() -> AmazonCloudWatchEMFProvider:
    return AmazonCloudWatchEMFProvider(namespace=NAMESPACE)


def _without_lanes(values: Mapping[Series, list[float]]) -> Mapping[Series, list[float]]:
    """The same values, a class's lanes taken together."""
    together: dict[Series, list[float]] = {}
    for (metric, of), told in values.items():
        key = (metric, of[:1] if metric.dimensions is Dimensions.LANE else of)
        together[key] = [*together.get(key, ()), *told]
    return together
