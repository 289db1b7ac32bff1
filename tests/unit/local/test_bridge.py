"""What tasks and clocks do to the lines the bridge reads: it goes on, and counts each of ours once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from fanfold.local import emf, metrics_tee
from fanfold.local.emf_forwarder import Bridge

NOW_MS = 1_790_000_000_000


def a_line(
    value: object = 1, *, at: object = NOW_MS, name: str = "Steps", namespace: str = "Fanfold", **facts: Any
) -> str:
    directive = {"Namespace": namespace, "Dimensions": [["service"]], "Metrics": [{"Name": name, "Unit": "Count"}]}
    return json.dumps(
        {"_aws": {"Timestamp": at, "CloudWatchMetrics": [directive]}, "service": "s", name: value} | facts
    )


class Logs:
    """Log groups in memory."""

    class exceptions:
        class ResourceNotFoundException(Exception):
            """There is no such group."""

    def __init__(self) -> None:
        self.events: list[tuple[int, str]] = []

    def filter_log_events(self, *, startTime: int, **_: Any) -> dict[str, Any]:
        found = sorted((at, line) for at, line in self.events if at >= startTime)
        return {"events": [{"timestamp": at, "message": line, "logStreamName": "s"} for at, line in found]}


class CloudWatch:
    """What was put, by namespace; a namespace `Bad` is refused for what is in it, `Busy` for load."""

    def __init__(self) -> None:
        self.put: list[float] = []
        self.busy = False

    def put_metric_data(self, *, Namespace: str, MetricData: list[dict[str, Any]]) -> None:
        if Namespace == "Bad":
            raise ParamValidationError(report="none of ours")
        if Namespace == "Refused" or self.busy:
            response: Any = {
                "Error": {"Code": "InternalFailure" if self.busy else "InvalidParameterValue"},
                "ResponseMetadata": {"HTTPStatusCode": 500 if self.busy else 400},
            }
            raise ClientError(response, "PutMetricData")
        self.put += [value for datum in MetricData for value in datum["Values"]]


class Stack:
    """A bridge between logs and CloudWatch in memory, on a clock of its own."""

    def __init__(self, state: Path) -> None:
        self.logs, self.cloudwatch, self.state, self.now_ms = Logs(), CloudWatch(), state, NOW_MS
        self.bridge = self.anew()

    def anew(self) -> Bridge:
        logs: Any = self.logs
        cloudwatch: Any = self.cloudwatch
        self.bridge = Bridge(logs, cloudwatch, self.state, clock=lambda: self.now_ms / 1_000)
        return self.bridge

    def says(self, line: str, *, at_ms: int | None = None) -> None:
        self.logs.events.append((self.now_ms if at_ms is None else at_ms, line))

    def fed(self) -> list[float]:
        self.bridge.feed(["group"])
        return self.cloudwatch.put


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(tmp_path)


@pytest.mark.parametrize("bad", ["Bad", "Refused"])
def test_what_cloudwatch_does_not_take_keeps_nothing_else_from_it(
    stack: Stack, bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stack.says(a_line(1))
    stack.says(a_line(2, namespace=bad))
    stack.says(a_line(3))
    assert sorted(stack.fed()) == [1, 3]
    assert bad in capsys.readouterr().out
    stack.says(a_line(4))
    assert sorted(stack.fed()) == [1, 3, 4]


def test_what_cloudwatch_refuses_for_load_is_put_later_and_once(stack: Stack) -> None:
    stack.says(a_line(1))
    stack.cloudwatch.busy = True
    with pytest.raises(ClientError):
        stack.fed()
    stack.cloudwatch.busy = False
    assert stack.fed() == [1]
    assert stack.fed() == [1]


@pytest.mark.parametrize(
    "line",
    [
        a_line(at=10**18),
        a_line(at=-(10**18)),
        a_line(at="soon"),
        a_line(float("nan")),
        a_line([1, float("inf")]),
        a_line(name=""),
        a_line(namespace=""),
        a_line(service=""),
        a_line(service={"not": "a text"}),
        a_line(name="Steps", Steps="many"),
        a_line([]),
        a_line().replace('[["service"]]', '["service"]'),
        a_line().replace('"Metrics": [', '"Metrics": [null, '),
        '{"_aws": ["CloudWatchMetrics"]}',
        "[" * 100_000 + "CloudWatchMetrics",
    ],
)
def test_a_line_that_no_cloudwatch_would_take_is_passed_over(line: str) -> None:
    assert list(emf.requests(emf.read(line))) == []


def test_a_line_from_a_clock_that_was_ahead_hides_none_that_come_after_it_and_doubles_none(stack: Stack) -> None:
    stack.says(a_line(1))
    stack.says(a_line(2), at_ms=NOW_MS + 3_600_000)
    assert stack.fed() == [1, 2]
    for value in range(3, 8):
        stack.now_ms += 3_000
        stack.says(a_line(value))
        stack.fed()
    assert stack.cloudwatch.put == [1, 2, 3, 4, 5, 6, 7]
    stack.anew()
    assert stack.fed() == [1, 2, 3, 4, 5, 6, 7]


def test_a_workers_file_that_begins_anew_is_read_from_its_beginning(stack: Stack) -> None:
    file = stack.state / metrics_tee.FOLDER / "17.jsonl"
    file.parent.mkdir()
    file.write_text(a_line(1) + "\n" + a_line(2) + "\n", encoding="utf-8")
    assert stack.fed() == [1, 2]
    file.write_text(a_line(3) + "\n", encoding="utf-8")
    assert stack.fed() == [1, 2, 3]


def test_a_huge_line_is_read_whole(stack: Stack) -> None:
    stack.says(a_line(list(range(100)), more="x" * 1_000_000))
    assert len(stack.fed()) == 100
