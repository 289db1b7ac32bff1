"""What is looked at is what is written: the dashboard's and the alarms' metrics, by the table both are made from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from functions.engine.run import Reason
from functions.runtime.metrics import NAMESPACE, Dimensions, FunctionName, Metric, Refusal
from infra.dashboard import QUESTIONS
from tests.infra.conftest import Json, Synthesised

DOCUMENTED = {
    "AWS/ApiGateway": {"Count", "Latency", "4xx", "5xx", "4XXError", "5XXError"},
    "AWS/DynamoDB": {"ReadThrottleEvents", "WriteThrottleEvents"},
    "AWS/Lambda": {"Duration", "Errors", "Invocations", "RecursiveInvocationsDropped", "Throttles"},
    "AWS/SQS": {
        "ApproximateAgeOfOldestMessage",
        "ApproximateNumberOfMessagesVisible",
        "NumberOfMessagesReceived",
    },
}
"""Names as AWS's own pages have them: HTTP API, DynamoDB, Lambda and SQS metrics. CloudWatch takes any other, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One series that somebody looks at."""

    namespace: str
    name: str
    dimensions: dict[str, str]


@pytest.fixture(scope="module")
def odd(synth: Callable[..., Synthesised]) -> Synthesised:
    """All that is not as it ships: a REST API, tracing, targets, a class that processes work on; the rules pass it."""
    classes = {
        "model": {"lanes": ["high", "low"], "timeout_seconds": 600, "targets": {"low": 7_200}},
        "harness": {"pool": "process", "lanes": ["normal"]},
    }
    context = {"stage": "prod", "api": "rest", "tracing": "true", "classes": json.dumps(classes)}
    return synth(context, nag=True)


def page(stack: Synthesised) -> Json:
    (dashboard,) = stack.all("AWS::CloudWatch::Dashboard").values()
    body: Json = json.loads(stack.text(dashboard["DashboardBody"]))
    return body


def on_page(stack: Synthesised) -> Iterator[Shown]:
    for widget in page(stack)["widgets"]:
        before: list[str] = []
        for row in widget["properties"].get("metrics", []):
            if isinstance(row[0], dict):
                continue
            words = [word for word in row if isinstance(word, str)]
            # A full stop repeats what the row before has there.
            words = [before[at] if word == "." else word for at, word in enumerate(words)]
            before = words
            yield Shown(namespace=words[0], name=words[1], dimensions=dict(zip(words[2::2], words[3::2], strict=True)))


def on_alarms(stack: Synthesised) -> Iterator[Shown]:
    for alarm in stack.all("AWS::CloudWatch::Alarm").values():
        several = [m["MetricStat"]["Metric"] for m in alarm.get("Metrics", []) if "MetricStat" in m]
        for metric in several or [alarm]:
            yield Shown(
                namespace=metric["Namespace"],
                name=metric["MetricName"],
                dimensions={d["Name"]: stack.text(d["Value"]) for d in metric.get("Dimensions", [])},
            )


def own(stack: Synthesised) -> list[Shown]:
    return [shown for shown in (*on_page(stack), *on_alarms(stack)) if shown.namespace == NAMESPACE]


@pytest.mark.parametrize("deployed", ["prod", "local"])
def test_every_metric_of_ours_is_looked_at_under_exactly_the_dimensions_it_is_written_with(
    deployed: str, request: pytest.FixtureRequest
) -> None:
    stack: Synthesised = request.getfixturevalue(deployed)
    values = {
        "service": {stack.config.stack_name},
        "class": set(stack.config.classes),
        "lane": {lane for of_class in stack.config.classes.values() for lane in of_class.lanes},
        "reason": {*map(str, Reason), *map(str, Refusal)},
        "function": set(map(str, FunctionName)),
    }
    assert own(stack)
    for shown in own(stack):
        assert set(shown.dimensions) == set(Metric(shown.name).dimensions.value), shown
        assert all(value in values[name] for name, value in shown.dimensions.items()), shown


def test_the_functions_write_under_the_deployments_name(prod: Synthesised) -> None:
    (named,) = {shown.dimensions["service"] for shown in own(prod)}

    assert named == prod.config.settings(table="t", bucket="b", queues={n: {} for n in prod.config.classes}).service


def test_every_metric_but_those_of_single_workflows_is_on_the_page_with_all_its_classes_and_lanes(
    prod: Synthesised,
) -> None:
    shown = {(each.name, tuple(sorted(each.dimensions.items()))) for each in on_page(prod)}
    lanes = [(name, lane) for name, of_class in prod.config.classes.items() for lane in of_class.lanes]
    service = prod.config.stack_name
    for metric in Metric:
        match metric.dimensions:
            case Dimensions.WORKFLOW:
                assert not [name for name, _ in shown if name == metric]
            case Dimensions.LANE:
                expected = {(("class", name), ("lane", lane), ("service", service)) for name, lane in lanes}
                assert {dimensions for name, dimensions in shown if name == metric} == expected
            case Dimensions.CLASS:
                expected_classes = {(("class", name), ("service", service)) for name in prod.config.classes}
                assert {dimensions for name, dimensions in shown if name == metric} == expected_classes
            case _:
                assert [name for name, _ in shown if name == metric], metric


def test_aws_metrics_have_documented_names(prod: Synthesised, odd: Synthesised) -> None:
    for stack in (prod, odd):
        theirs = [shown for shown in (*on_page(stack), *on_alarms(stack)) if shown.namespace != NAMESPACE]

        assert {shown.namespace for shown in theirs} == set(DOCUMENTED)
        for shown in theirs:
            assert shown.name in DOCUMENTED[shown.namespace]
            assert shown.dimensions
            assert all(shown.dimensions.values())


def test_the_page_asks_its_questions_in_an_operators_order_and_says_what_each_row_means(prod: Synthesised) -> None:
    texts = [w["properties"]["markdown"] for w in page(prod)["widgets"] if w["type"] == "text"]

    assert [text.splitlines()[0] for text in texts] == [f"## {question.QUESTION}" for question in QUESTIONS]
    assert [question.QUESTION for question in QUESTIONS] == [
        "Are users served?",
        "Is work getting done?",
        "Is it done in time?",
        "What does it cost?",
        "What is about to break?",
    ]
    assert all(len(text.splitlines()[1]) > 100 for text in texts)


def test_the_page_keeps_its_periods_because_costs_are_computed_from_them(prod: Synthesised) -> None:
    body = page(prod)
    periods = {
        options.get("period", 300)
        for widget in body["widgets"]
        for row in widget["properties"].get("metrics", [])
        for options in row
        if isinstance(options, dict)
    }

    assert (body["periodOverride"], periods) == ("inherit", {300})


def test_a_messages_age_alarms_by_its_lanes_own_target_beyond_a_workers_life(odd: Synthesised) -> None:
    limits = {
        alarm["AlarmDescription"].split(" is older")[0].rsplit(" ")[-1]: alarm["Threshold"]
        for alarm in odd.all("AWS::CloudWatch::Alarm").values()
        if alarm.get("MetricName") == "ApproximateAgeOfOldestMessage"
    }

    assert limits == {"model/high": 660, "model/low": 7_800, "model/resume": 660}


def test_lanes_that_processes_work_on_alarm_when_nobody_takes_anything(odd: Synthesised) -> None:
    untaken = [alarm for name, alarm in odd.all("AWS::CloudWatch::Alarm").items() if "Untaken" in name]

    assert [alarm["AlarmDescription"].split(",")[0] for alarm in untaken] == [
        "Messages wait in harness/normal",
        "Messages wait in harness/resume",
    ]


def test_tracing_is_off_unless_it_is_asked_for(prod: Synthesised, odd: Synthesised) -> None:
    assert not [f for f in prod.functions().values() if f.get("TracingConfig")]
    assert all(f["TracingConfig"] == {"Mode": "Active"} for f in odd.functions().values())
