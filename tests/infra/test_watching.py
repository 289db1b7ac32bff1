"""What is looked at is what is written: the dashboard's and the alarms' metrics, by the table both are made from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from fanfold.cdk.dashboard.page import QUESTIONS
from fanfold.engine.record.run import Reason
from fanfold.service.telemetry.metrics import NAMESPACE, Dimensions, FunctionName, Metric, Refusal
from infra.stack import PROJECT
from tests.infra.conftest import Json, Synthesised

DOCUMENTED = {
    "AWS/ApiGateway": {"Count", "Latency", "4xx", "5xx", "4XXError", "5XXError"},
    "AWS/DynamoDB": {"ReadThrottleEvents", "WriteThrottleEvents"},
    "AWS/Lambda": {"Duration", "Errors", "Invocations", "RecursiveInvocationsDropped", "Throttles"},
    "AWS/SQS": {
        "ApproximateAgeOfOldestMessage",
        "ApproximateNumberOfMessagesNotVisible",
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

    # A wake may have been delayed by 900 s, and a worker lives for 600 s.
    assert limits == {"model/high": 1_560, "model/low": 8_700, "model/resume": 1_560}


def test_lanes_that_processes_work_on_alarm_when_nobody_takes_anything(odd: Synthesised) -> None:
    untaken = [alarm for name, alarm in odd.all("AWS::CloudWatch::Alarm").items() if "Untaken" in name]

    assert [alarm["AlarmDescription"].split(",")[0] for alarm in untaken] == [
        "Messages wait in harness/normal",
        "Messages wait in harness/resume",
    ]


def test_tracing_is_off_unless_it_is_asked_for(prod: Synthesised, odd: Synthesised) -> None:
    assert not [f for f in prod.functions().values() if f.get("TracingConfig")]
    assert all(f["TracingConfig"] == {"Mode": "Active"} for f in odd.functions().values())


def alarms_on(stack: Synthesised, metric: str) -> dict[str, Json]:
    """The alarms on a single metric of this name, by what they say."""
    alarms = stack.all("AWS::CloudWatch::Alarm").values()
    return {alarm["AlarmDescription"]: alarm for alarm in alarms if alarm.get("MetricName") == metric}


def test_runs_that_waited_longer_than_their_lanes_target_alarm_whoever_works_on_them(odd: Synthesised) -> None:
    limits = {says.split(" wait")[0]: a["Threshold"] / 1_000 for says, a in alarms_on(odd, Metric.QUEUE_WAIT).items()}

    assert limits == {"Runs of model/high": 60, "Runs of model/low": 7_200, "Runs of harness/normal": 300}


def test_requests_that_are_answered_with_an_error_of_ours_alarm(prod: Synthesised, odd: Synthesised) -> None:
    assert len(alarms_on(prod, "5xx")) == 1
    assert len(alarms_on(odd, "5XXError")) == 1


def test_a_dead_letter_alarms_for_as_long_as_it_stays_hidden_or_not(prod: Synthesised) -> None:
    letters, *_ = [a for name, a in prod.all("AWS::CloudWatch::Alarm").items() if "DeadLetters" in name]
    names = {query["MetricStat"]["Metric"]["MetricName"] for query in letters["Metrics"] if "MetricStat" in query}

    assert names == {
        "NumberOfMessagesReceived",
        "ApproximateNumberOfMessagesVisible",
        "ApproximateNumberOfMessagesNotVisible",
    }


@pytest.fixture(scope="module")
def drained(synth: Callable[..., Synthesised]) -> Synthesised:
    """Five classes, no mapping, the queue wait by class."""
    classes = {name: {"lanes": ["high", "low"]} for name in ("a", "b", "c", "d", "e")}
    context = {"mappings": "false", "classes": json.dumps(classes), "settings": json.dumps({"lane_metrics": False})}
    return synth(context)


def test_no_alarm_looks_at_more_metrics_than_cloudwatch_lets_it(drained: Synthesised) -> None:
    watched: set[str] = set()
    for alarm in drained.all("AWS::CloudWatch::Alarm").values():
        metrics = [query["MetricStat"] for query in alarm.get("Metrics", ()) if "MetricStat" in query]
        assert len(metrics) <= 10, alarm["AlarmDescription"]
        throttles = [stat["Metric"] for stat in metrics if stat["Metric"]["MetricName"] == "Throttles"]
        watched |= {str(metric["Dimensions"][0]["Value"]) for metric in throttles}

    functions = drained.all("AWS::Lambda::Function").values()
    ours = [f for f in functions if f["Handler"].startswith("functions.")]
    assert len(watched) == len(ours) == 15


def test_a_bound_of_maps_at_work_sets_off_no_alarm(synth: Callable[..., Synthesised]) -> None:
    stack = synth({"stage": "prod", "classes": {"model": {"map_concurrency": 40}, "harness": {}}})
    watched = {
        str(query["MetricStat"]["Metric"]["Dimensions"][0]["Value"])
        for alarm in stack.all("AWS::CloudWatch::Alarm").values()
        for query in alarm.get("Metrics", ())
        if query.get("MetricStat", {}).get("Metric", {}).get("MetricName") == "Throttles"
    }
    unwatched = [
        f
        for name, f in stack.all("AWS::Lambda::Function").items()
        if f["Handler"].startswith("functions.") and str({"Ref": name}) not in watched
    ]
    assert [(f["Handler"], f["ReservedConcurrentExecutions"]) for f in unwatched] == [("functions.fanout.handler", 40)]


def test_what_no_function_takes_alarms_as_what_processes_take(drained: Synthesised) -> None:
    assert not alarms_on(drained, "ApproximateAgeOfOldestMessage")
    assert len([name for name in drained.all("AWS::CloudWatch::Alarm") if "Untaken" in name]) == 5 * 3


def test_without_lanes_the_queue_wait_is_looked_at_as_it_is_told(drained: Synthesised) -> None:
    waits = [shown for shown in own(drained) if shown.name == Metric.QUEUE_WAIT]

    assert {frozenset(shown.dimensions) for shown in waits} == {frozenset({"service", "class"})}
    assert {shown.dimensions["class"] for shown in waits} == set(drained.config.classes)
    assert {alarm["Threshold"] for alarm in alarms_on(drained, Metric.QUEUE_WAIT).values()} == {3_600_000}


def test_every_alarm_names_a_section_of_the_operators_page_that_is_there(
    odd: Synthesised, drained: Synthesised
) -> None:
    page = (PROJECT.folder / "docs" / "operations.md").read_text(encoding="utf-8")
    sections = {
        line[4:].strip().lower().replace(" ", "-"): at
        for at, line in enumerate(page.splitlines())
        if line.startswith("### ")
    }
    for stack in (odd, drained):
        alarms = stack.all("AWS::CloudWatch::Alarm").values()
        assert alarms
        for alarm in alarms:
            named = alarm["AlarmDescription"].rpartition("docs/operations.md#")[2]
            assert named in sections, alarm["AlarmDescription"]
            text = page.splitlines()[sections[named] : sections[named] + 25]
            assert [
                word for word in ("**Means.**", "**Look at.**", "**Do.**") if any(word in line for line in text)
            ] == ["**Means.**", "**Look at.**", "**Do.**"]
