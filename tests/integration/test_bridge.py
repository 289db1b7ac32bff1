"""Each line of a log reaches CloudWatch once, whenever it is written and however often the bridge starts anew."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from fanfold.local import emf_forwarder
from fanfold.local.emf_forwarder import Bridge

pytestmark = pytest.mark.emulator


def metrics_line(namespace: str, *values: float) -> str:
    directive = {"Namespace": namespace, "Dimensions": [["service"]], "Metrics": [{"Name": "Steps", "Unit": "Count"}]}
    facts = {"Timestamp": int(time.time() * 1000), "CloudWatchMetrics": [directive]}
    return json.dumps({"_aws": facts, "service": "fanfold", "Steps": list(values)})


class Logs:
    """A log group and a namespace of their own in the emulator, and bridges between them."""

    def __init__(self, session: boto3.Session, endpoint: str, state: Path) -> None:
        self._logs = session.client("logs", endpoint_url=endpoint)
        self._cloudwatch = session.client("cloudwatch", endpoint_url=endpoint)
        self._state = state
        self.namespace = f"Test-{uuid.uuid4().hex[:8]}"
        self.group = f"/test/{self.namespace}"
        self._logs.create_log_group(logGroupName=self.group)

    def close(self) -> None:
        self._logs.close()
        self._cloudwatch.close()

    def write(self, *lines: str, stream: str = "s", seconds_ago: float = 0) -> None:
        with contextlib.suppress(self._logs.exceptions.ResourceAlreadyExistsException):
            self._logs.create_log_stream(logGroupName=self.group, logStreamName=stream)
        at = int((time.time() - seconds_ago) * 1000)
        events: Any = [{"timestamp": at, "message": line} for line in lines]
        self._logs.put_log_events(logGroupName=self.group, logStreamName=stream, logEvents=events)

    def bridge(self) -> Bridge:
        return Bridge(self._logs, self._cloudwatch, self._state)

    def counted(self) -> tuple[float, float]:
        """How many values CloudWatch has, and their sum."""
        now = datetime.now(UTC)
        told = self._cloudwatch.get_metric_statistics(
            Namespace=self.namespace,
            MetricName="Steps",
            Dimensions=[{"Name": "service", "Value": "fanfold"}],
            StartTime=now - timedelta(hours=1),
            EndTime=now + timedelta(hours=1),
            Period=86_400,
            Statistics=["SampleCount", "Sum"],
        )["Datapoints"]
        return sum(point["SampleCount"] for point in told), sum(point["Sum"] for point in told)


@pytest.fixture
def logs(session: boto3.Session, emulator_url: str, tmp_path: Path) -> Iterator[Logs]:
    made = Logs(session, emulator_url, tmp_path)
    yield made
    made.close()


def test_every_value_of_every_line_is_put_once_and_other_lines_are_not_read(logs: Logs) -> None:
    first = logs.bridge()
    logs.write(metrics_line(logs.namespace, 1, 2), '{"message": "swept"}', "START CloudWatchMetrics")
    first.feed([logs.group, "/test/nothing-there"])
    first.feed([logs.group])
    assert logs.counted() == (2, 3)


def test_a_bridge_that_starts_anew_goes_on_where_the_last_one_was(logs: Logs) -> None:
    logs.write(metrics_line(logs.namespace, 1))
    logs.bridge().feed([logs.group])
    logs.write(metrics_line(logs.namespace, 10), stream="another")
    logs.bridge().feed([logs.group])
    assert logs.counted() == (2, 11)


def test_a_line_that_comes_late_and_two_that_are_the_same_are_all_counted(logs: Logs) -> None:
    twin = metrics_line(logs.namespace, 1)
    logs.write(twin, twin)
    one = logs.bridge()
    one.feed([logs.group])
    logs.write(metrics_line(logs.namespace, 100), stream="slow", seconds_ago=5)
    one.feed([logs.group])
    assert logs.counted() == (3, 102)


def test_more_lines_than_one_answer_holds_are_all_read(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emf_forwarder, "PAGE", 3)
    for number in range(4):
        logs.write(*[metrics_line(logs.namespace, 1)] * 2, stream=f"s{number}", seconds_ago=number)
    logs.bridge().feed([logs.group])
    assert logs.counted() == (8, 8)


def test_a_worker_process_is_heard_to_its_last_whole_line(logs: Logs, tmp_path: Path) -> None:
    line = metrics_line(logs.namespace, 1)
    script = """
import os, pathlib, signal, subprocess, sys
from fanfold.local import metrics_tee as tee
_, state, line = sys.argv
tee.begin(pathlib.Path(state))
tee.begin(pathlib.Path(state))  # as after an exec
print("a word", flush=True)
print(line, flush=True)
subprocess.run([sys.executable, "-c", "import sys; print(sys.argv[1])", line])
print(line[:120], end="", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", script, str(tmp_path), line]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    # All it printed went where it went before, too.
    assert done.stdout.splitlines() == ["a word", line, line, line[:120]]
    logs.bridge().feed([])
    logs.bridge().feed([])
    assert logs.counted() == (2, 2)
