"""A CloudWatch that answers GetMetricData from given series, by a metric's name or an expression's text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

Given = Sequence[float | None] | Sequence[Sequence[float | None]] | str


class CloudWatch:
    """Each series begins at `begin`; a list has several series, and a word is the code of an error."""

    def __init__(self, series: Mapping[str, Any], begin: datetime) -> None:
        self._series = series
        self._begin = begin

    def __getattr__(self, name: str) -> Any:
        assert name == "get_paginator"
        return lambda call: self

    def paginate(self, *, MetricDataQueries: Sequence[Mapping[str, Any]], **given: Any) -> Iterator[Mapping[str, Any]]:
        """A page of results for each query."""
        for query in MetricDataQueries:
            yield {"MetricDataResults": list(self._results(query))}

    def _results(self, query: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        stat = query.get("MetricStat", {})
        name = query.get("Expression") or stat["Metric"]["MetricName"]
        found = self._series[name]
        if isinstance(found, str):
            raise ClientError({"Error": {"Code": found, "Message": f"refused: {name}"}}, "GetMetricData")
        several = found if isinstance(found, list) else [found]
        period = timedelta(seconds=stat.get("Period") or query["Period"])
        for number, series in enumerate(several, 1):
            points = [(self._begin + slot * period, value) for slot, value in enumerate(series) if value is not None]
            yield {
                "Id": query["Id"],
                "Label": query["Label"] if len(several) == 1 else f"{query['Label']} {number}",
                "Timestamps": [at for at, _ in points],
                "Values": [value for _, value in points],
            }
