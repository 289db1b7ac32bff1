"""Converts log lines in CloudWatch's embedded metric format into data for PutMetricData.

CloudWatch reads such lines from logs itself; emulators don't. The format is in the CloudWatch user guide,
"Specification: Embedded metric format".
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

MARK = "CloudWatchMetrics"
"""A text that every such line contains."""

PUT_DATA = 500
"""Metrics in one PutMetricData; CloudWatch takes 1,000, and 1 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Datum:
    """A line's values of one metric with one set of dimensions. `at_ms` is their time since 1970."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    unit: str
    at_ms: int
    values: tuple[float, ...]


def read(line: str) -> Sequence[Datum]:
    """The metrics of a log line; none if the line has no embedded metrics or lacks a member that it names."""
    if MARK not in line:
        return ()
    try:
        entry = json.loads(line)
        facts = entry["_aws"]
        at_ms = int(facts["Timestamp"])
        datetime.fromtimestamp(at_ms / 1000, UTC)
        return tuple(datum for directive in facts[MARK] for datum in _directed(directive, entry, at_ms))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError, RecursionError):
        return ()  # CloudWatch also ignores malformed lines


def _directed(directive: Mapping[str, Any], entry: Mapping[str, Any], at_ms: int) -> Iterator[Datum]:
    for metric in directive["Metrics"]:
        stated = entry.get(metric["Name"])
        if stated is None:
            continue
        values = tuple(float(value) for value in (stated if isinstance(stated, list) else [stated]))
        for names in directive["Dimensions"]:
            if isinstance(names, str) or not all(isinstance(entry.get(name), str) for name in names):
                continue
            datum = Datum(
                namespace=str(directive["Namespace"]),
                name=str(metric["Name"]),
                dimensions=tuple((str(name), entry[name]) for name in names),
                unit=str(metric.get("Unit", "None")),
                at_ms=at_ms,
                values=values,
            )
            if _is_whole(datum):
                yield datum


def _is_whole(datum: Datum) -> bool:
    """Whether CloudWatch would accept it: nothing empty, and finite numbers."""
    words = (datum.namespace, datum.name, *(word for pair in datum.dimensions for word in pair))
    return bool(datum.values) and all(words) and all(map(math.isfinite, datum.values))


def requests(data: Iterable[Datum]) -> Iterator[dict[str, Any]]:
    """The arguments of the PutMetricData calls for these data, each with as many as a call takes."""
    by_namespace: dict[str, list[dict[str, Any]]] = {}
    for datum in data:
        by_namespace.setdefault(datum.namespace, []).append(_metric_datum(datum))
    for namespace, metrics in by_namespace.items():
        for start in range(0, len(metrics), PUT_DATA):
            yield {"Namespace": namespace, "MetricData": metrics[start : start + PUT_DATA]}


def _metric_datum(datum: Datum) -> dict[str, Any]:
    counts = Counter(datum.values)  # a line has at most 100 values, a call takes 150 different ones
    return {
        "MetricName": datum.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in datum.dimensions],
        "Timestamp": datetime.fromtimestamp(datum.at_ms / 1000, UTC),
        "Unit": datum.unit,
        "Values": list(counts),
        "Counts": [float(count) for count in counts.values()],
    }
