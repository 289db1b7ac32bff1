"""Log lines and metrics: one JSON object a line, one metrics line a flush, and nothing heavy imported for them."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aws_lambda_powertools.metrics import MetricUnit

from fanfold.service.settings import Settings
from fanfold.service.telemetry import emf, reporting
from fanfold.service.telemetry.metric_buffer import Series
from fanfold.service.telemetry.reporting import (
    FunctionName,
    Metric,
    about,
    begin,
    configure,
    count,
    flush,
    logger,
    measure,
    observe,
    set_level,
)


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


def test_counts_are_added_up_measures_replaced_distributions_kept_and_flushed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    count(Metric.OUTAGES)
    count(Metric.OUTAGES, 2)
    measure(Metric.SWEEP_TURN_SECONDS, 60)
    measure(Metric.SWEEP_TURN_SECONDS, 90)
    observe(Metric.RUN_DURATION, 10, of=("model",))
    observe(Metric.RUN_DURATION, 30, of=("model",))
    flush()
    flush()
    (line,) = lines(capsys)
    assert (line["Outages"], line["SweepTurnSeconds"], line["RunDuration"]) == ([3], [90], [10, 30])


def test_a_line_has_a_directive_for_each_set_of_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    count(Metric.OUTAGES)
    count(Metric.CRASHES, of=("model",))
    count(Metric.RUNS_ACCEPTED, of=("model",))
    observe(Metric.QUEUE_WAIT, 12.5, of=("model", "high"))
    flush()
    (line,) = lines(capsys)
    told = {
        tuple(directive["Dimensions"][0]): {metric["Name"]: metric["Unit"] for metric in directive["Metrics"]}
        for directive in line["_aws"]["CloudWatchMetrics"]
    }
    assert told == {
        ("service",): {"Outages": "Count"},
        ("service", "class"): {"Crashes": "Count", "RunsAccepted": "Count"},
        ("service", "class", "lane"): {"QueueWait": "Milliseconds"},
    }
    assert (line["service"], line["class"], line["lane"]) == ("fanfold", "model", "high")
    assert {directive["Namespace"] for directive in line["_aws"]["CloudWatchMetrics"]} == {"Fanfold"}


def test_series_that_differ_in_a_dimension_are_in_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    for class_name, lane in (("model", "high"), ("model", "low"), ("harness", "high")):
        observe(Metric.QUEUE_WAIT, 1, of=(class_name, lane))
        count(Metric.STEPS, of=(class_name,))
    flush()
    told = {
        (line["class"], line.get("lane"), name)
        for line in lines(capsys)
        for name in ("QueueWait", "Steps")
        if name in line
    }
    assert told == {
        ("model", "high", "QueueWait"),
        ("model", "high", "Steps"),
        ("model", "low", "QueueWait"),
        ("harness", "high", "QueueWait"),
        ("harness", "high", "Steps"),
    }


def test_which_line_tells_a_series_does_not_depend_on_what_was_told_first() -> None:
    values: dict[Series, list[float]] = {
        (Metric.STEPS, ("model",)): [1],
        (Metric.QUEUE_WAIT, ("model", "low")): [2],
        (Metric.QUEUE_WAIT, ("model", "high")): [3],
        (Metric.OUTAGES, ()): [4],
    }

    def told(series: Iterable[Series]) -> list[Any]:
        return [
            {name: value for name, value in json.loads(line).items() if name != "_aws"}
            for line in emf.lines({each: values[each] for each in series}, service="fanfold")
        ]

    first, *others = [told(series) for series in itertools.permutations(values)]
    assert all(other == first for other in others)


def test_a_distribution_of_more_than_a_hundred_values_goes_on_in_the_next_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for value in range(250):
        observe(Metric.QUEUE_WAIT, value, of=("model", "normal"))
    flush()
    parts = [line["QueueWait"] for line in lines(capsys)]
    assert [len(part) for part in parts] == [100, 100, 50]
    assert [value for part in parts for value in part] == list(range(250))


def test_a_metric_without_its_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match="class"):
        count(Metric.RUNS_ACCEPTED, of=())


def test_the_deployments_name_is_in_its_metrics_and_logs(capsys: pytest.CaptureFixture[str]) -> None:
    begin(Settings(service="fanfold-prod"), FunctionName.API)
    try:
        logger().info("a line")
        flush()
    finally:
        configure(Settings(debug_sample=0))
    said, counted = lines(capsys)
    assert (said["service"], counted["service"], counted["function"]) == ("fanfold-prod", "fanfold-prod", "api")
    assert counted["ColdStarts"] == [1]


async def test_lines_have_the_run_they_are_about_as_correlation_id_however_many_runs_go_on_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def work(run_id: str) -> None:
        with about(run_id):
            await asyncio.sleep(0)
            logger().info(f"on the loop {run_id}")
            await asyncio.create_task(said_later(run_id))

    async def said_later(run_id: str) -> None:
        logger().info(f"in a task {run_id}")

    await asyncio.gather(*(work(f"r{number}") for number in range(20)))
    logger().info("about none")
    logger().info("by its key r99", extra={"run_id": "r99"})
    told = [(line["message"].rsplit(" ", 1)[1], line.get("correlation_id")) for line in lines(capsys)]
    assert len(told) == 42
    assert [pair for pair in told if pair[0] != pair[1]] == [("none", None)]


def test_debug_lines_are_those_of_a_share_of_runs_the_same_in_every_function(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def said() -> set[str]:
        for number in range(200):
            logger().debug("a decision", extra={"run_id": f"r{number}"})
        logger().debug("about no run")
        logger().info("about no run")
        return {line.get("run_id", line["level"]) for line in lines(capsys)}

    configure(Settings(debug_sample=0.25))
    try:
        first, second = said(), said()
    finally:
        configure(Settings(debug_sample=0))
    assert first == second
    assert 25 < len(first) < 75
    assert "INFO" in first
    assert said() == {"INFO"}


def test_threads_lose_no_count_though_it_is_written_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    def counted(number: int) -> None:
        count(Metric.DROPPED)
        observe(Metric.RUN_DURATION, number, of=("model",))
        if number % 7 == 0:
            flush()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(counted, range(1_000)))
    flush()
    told = lines(capsys)
    assert sum(value for line in told for value in line.get("Dropped", ())) == 1_000
    assert sorted(value for line in told for value in line.get("RunDuration", ())) == list(range(1_000))


def test_importing_it_says_nothing_and_loads_neither_pydantic_nor_the_tracing_sdk() -> None:
    heavy = "{'pydantic', 'aws_xray_sdk', 'boto3'}"
    script = f"import sys, fanfold.service.telemetry.reporting\nprint({heavy} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (result.stdout.strip(), result.stderr) == ("set()", "")


def test_every_metric_has_a_name_of_its_own_and_a_unit_cloudwatch_knows() -> None:
    units = {unit.value for unit in MetricUnit}
    assert len({metric.value for metric in reporting.Metric}) == len(reporting.Metric.__members__)
    for metric in reporting.Metric:
        assert metric.unit in units
        assert metric.dimensions.value[0] == "service"
        assert re.fullmatch(r"[A-Z][A-Za-z]{1,254}", metric)
        assert len(metric.dimensions.value) <= 30
    assert len(reporting.Metric) <= 100  # metrics in one directive (embedded metric format specification)
