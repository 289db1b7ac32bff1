"""What a function's metrics line says is what CloudWatch would read out of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fanfold.local import emf
from fanfold.local.emf import Datum


def line(**changes: Any) -> str:
    entry: dict[str, Any] = {
        "_aws": {
            "Timestamp": 1_796_067_190_123,
            "CloudWatchMetrics": [
                {
                    "Namespace": "Fanfold",
                    "Dimensions": [["service"], ["service", "class"]],
                    "Metrics": [{"Name": "QueueWait", "Unit": "Milliseconds"}, {"Name": "Steps"}],
                }
            ],
        },
        "service": "fanfold",
        "class": "model",
        "QueueWait": [5.0, 7, 5],
        "Steps": 2,
    }
    return json.dumps({name: value for name, value in {**entry, **changes}.items() if value is not None})


def datum(name: str, unit: str, *values: float, of: tuple[tuple[str, str], ...]) -> Datum:
    return Datum(namespace="Fanfold", name=name, dimensions=of, unit=unit, at_ms=1_796_067_190_123, values=values)


SERVICE = (("service", "fanfold"),)
CLASS = (*SERVICE, ("class", "model"))


def test_every_metric_is_told_under_every_set_of_dimensions() -> None:
    assert emf.read(line()) == (
        datum("QueueWait", "Milliseconds", 5, 7, 5, of=SERVICE),
        datum("QueueWait", "Milliseconds", 5, 7, 5, of=CLASS),
        datum("Steps", "None", 2, of=SERVICE),
        datum("Steps", "None", 2, of=CLASS),
    )


def test_a_set_of_dimensions_without_its_value_and_a_metric_without_one_are_left_out() -> None:
    told = emf.read(line(**{"class": None, "QueueWait": None}))
    assert told == (datum("Steps", "None", 2, of=SERVICE),)


@pytest.mark.parametrize(
    "text",
    [
        "plain words about CloudWatchMetrics",
        '{"_aws": "CloudWatchMetrics"}',
        '["CloudWatchMetrics"]',
        '{"message": "swept", "level": "INFO"}',
        line(_aws={"Timestamp": "yesterday", "CloudWatchMetrics": []}),
        line(_aws={"Timestamp": 1, "CloudWatchMetrics": [{"Namespace": "x"}]}),
        line(Steps="many", QueueWait=None),
    ],
)
def test_what_only_looks_like_metrics_says_nothing(text: str) -> None:
    assert emf.read(text) == ()


def test_equal_values_are_counted_and_a_call_holds_one_namespace_and_no_more_than_it_may() -> None:
    many = [datum("QueueWait", "Milliseconds", 5, 7, 5, of=SERVICE)] * (emf.PUT_DATA + 1)
    first, second = emf.requests(many)
    assert (first["Namespace"], len(first["MetricData"]), len(second["MetricData"])) == ("Fanfold", emf.PUT_DATA, 1)
    (told,) = second["MetricData"]
    assert dict(zip(told["Values"], told["Counts"], strict=True)) == {5: 2, 7: 1}
    assert told["Timestamp"].isoformat(timespec="milliseconds") == "2026-11-30T19:33:10.123+00:00"
