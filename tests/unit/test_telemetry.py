"""Log lines and metrics: one JSON object a line, one metrics line a flush, and nothing heavy imported for them."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from functions.runtime import telemetry
from functions.runtime.telemetry import Metric, count, flush, logger, measure, set_level


@pytest.fixture(autouse=True)
def _nothing_counted_before(capsys: pytest.CaptureFixture[str]) -> None:
    flush()
    capsys.readouterr()


def lines(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_log_line_is_one_json_object_with_its_extra_keys(capsys: pytest.CaptureFixture[str]) -> None:
    logger().info("a run ended", extra={"run_id": "r1", "epoch": 2})
    (line,) = lines(capsys)
    assert (line["message"], line["run_id"], line["epoch"]) == ("a run ended", "r1", 2)
    assert (line["service"], line["level"]) == ("fanfold", "INFO")


def test_the_level_is_what_was_set(capsys: pytest.CaptureFixture[str]) -> None:
    logger().debug("unheard")
    set_level("debug")
    try:
        logger().debug("heard")
    finally:
        set_level("INFO")
    assert [line["message"] for line in lines(capsys)] == ["heard"]
    with pytest.raises(ValueError, match="LOUD"):
        set_level("loud")


def test_counts_are_added_up_and_flushed_as_one_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    count(Metric.CRASHES)
    count(Metric.CRASHES, 2)
    measure(Metric.SWEEP_TURN_SECONDS, 60)
    measure(Metric.SWEEP_TURN_SECONDS, 90)
    flush()
    flush()
    (line,) = lines(capsys)
    assert (line["Crashes"], line["SweepTurnSeconds"]) == ([3.0], [90.0])
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == ("Fanfold", [["service"]])
    assert {m["Name"]: m["Unit"] for m in directive["Metrics"]} == {"Crashes": "Count", "SweepTurnSeconds": "Seconds"}


def test_threads_lose_no_count(capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: count(Metric.DROPPED), range(1_000)))
    flush()
    assert lines(capsys)[0]["Dropped"] == [1000.0]


def test_importing_it_says_nothing_and_loads_neither_pydantic_nor_the_tracing_sdk() -> None:
    script = "import sys, functions.runtime.telemetry; print({'pydantic', 'aws_xray_sdk', 'boto3'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (result.stdout.strip(), result.stderr) == ("set()", "")


def test_every_metric_has_a_name_of_its_own() -> None:
    assert len({metric.value for metric in telemetry.Metric}) == len(telemetry.Metric.__members__)
