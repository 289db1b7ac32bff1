"""Metrics as CloudWatch's embedded metric format: as few lines as can be, because each byte of a log costs.

Powertools knows the format. Its `add_metric` is not used: it takes about 15 µs a value, most of it to check units and
names, which are checked once, by a test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider

from functions.runtime.metrics import NAMESPACE, Dimensions
from functions.runtime.tally import Series

Line = dict[str, Any]

MAX_VALUES: Final = 100
"""Values of one metric in one line (embedded metric format specification, MetricDefinition)."""


@cache
def _format() -> AmazonCloudWatchEMFProvider:
    return AmazonCloudWatchEMFProvider(namespace=NAMESPACE)


def lines(values: Mapping[Series, list[float]], *, service: str, by_lane: bool = True) -> Iterator[Line]:
    """The lines, as JSON objects, that tell these values of this deployment; if not `by_lane`, lanes' values together.

    A line has a directive for each set of dimensions, and series that need different values of one dimension are in
    different lines. Distributions of over 100 values go on in further ones.
    """
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], Line] = {}
    more: dict[Series, list[float]] = {}
    for series, told in (values if by_lane else _without_lanes(values)).items():
        metric, of = series
        if len(told) > MAX_VALUES:
            more[series] = told[MAX_VALUES:]
            told = told[:MAX_VALUES]
        # Both names and units are strings; an enum's `value` is slow.
        names = metric.dimension_names[: len(of) + 1]
        groups.setdefault((names, of), {})[metric] = {"Unit": metric.unit, "Value": told}
    packed: list[Line] = []
    for (names, of), metrics in groups.items():
        labels = dict(zip(names, (service, *of), strict=True))
        single: Line = dict(_format().serialize_metric_set(metrics=metrics, dimensions=labels))
        for line in packed:
            # No metric is in two sets of dimensions, so where these agree, nothing else can clash.
            if all(line.get(name, value) == value for name, value in labels.items()):
                line["_aws"]["CloudWatchMetrics"] += single.pop("_aws")["CloudWatchMetrics"]
                line |= single
                break
        else:
            packed.append(single)
    yield from packed
    if more:
        yield from lines(more, service=service)


def _without_lanes(values: Mapping[Series, list[float]]) -> Mapping[Series, list[float]]:
    """The same values, a class's lanes taken together."""
    together: dict[Series, list[float]] = {}
    for (metric, of), told in values.items():
        key = (metric, of[:1] if metric.dimensions is Dimensions.LANE else of)
        together[key] = [*together.get(key, ()), *told]
    return together
