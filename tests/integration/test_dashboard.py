"""The proof of the first page: what it asks CloudWatch for is there, after a load with faults on the deployed stack.

Our metrics go the way they go locally: a function's log line, the bridge, PutMetricData, and back by GetMetricData with
exactly the dimensions of the deployed page. What a stack plays too rarely is played in memory, and the lines that the
code writes then are put into a function's log group.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from fanfold.adapters.message_codec import encode
from fanfold.dashboard import data, deployed
from fanfold.dashboard.deployed import Deployment
from fanfold.dashboard.figures import Series
from fanfold.dashboard.page import Line
from fanfold.dashboard.page import Metric as Asked
from fanfold.engine.record.messages import DEAD, Wake
from fanfold.local.local_stack import LocalStack
from fanfold.service.settings import Settings
from fanfold.service.telemetry.metrics import NAMESPACE, Metric
from tests.infra.conftest import Synthesised, synthesise
from tests.integration.test_local_stack import fanfold
from tests.support import metric_math, telling
from tests.support.site import Site

pytestmark = pytest.mark.emulator

FED_SECONDS = 60
"""The bridge looks every three seconds; a machine may be busy."""

DIMENSIONS = {
    "AWS/ApiGateway": [{"ApiId"}, {"ApiName"}, {"ApiId", "Stage"}, {"ApiName", "Stage"}],
    "AWS/DynamoDB": [{"TableName"}, {"TableName", "GlobalSecondaryIndexName"}],
    "AWS/ECS": [{"ClusterName"}, {"ClusterName", "ServiceName"}],
    "AWS/Lambda": [{"FunctionName"}],
    "AWS/SQS": [{"QueueName"}],
}
"""The sets under which AWS publishes what we look at: API Gateway's pages on HTTP and REST APIs' metrics, DynamoDB
"Metrics and dimensions", ECS "CloudWatch metrics", Lambda "Types of metrics", SQS "Available CloudWatch metrics"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The stack after a load with faults, and who looks at it."""

    deployment: Deployment
    template: Synthesised
    session: boto3.Session
    endpoint: str

    def alarms(self) -> Mapping[str, Mapping[str, Any]]:
        """Every alarm of a real account's template, by its id; the emulator has those on single metrics only."""
        return self.template.all("AWS::CloudWatch::Alarm")

    def asked(self) -> Sequence[Asked]:
        """All that the page and the alarms ask for; names that only AWS gives are those of the template."""
        found = self.shown()
        for alarm in self.alarms().values():
            found += [self.metric(one) for one in alarm.get("Metrics", [{"MetricStat": alarm}]) if "MetricStat" in one]
        return list(dict.fromkeys(found))

    def shown(self) -> list[Asked]:
        """The metrics of the page, hidden ones too."""
        lines = [line for widget in self.deployment.page.widgets for line in widget.lines]
        return list(dict.fromkeys(line.metric for line in lines if line.metric is not None))

    def metric(self, query: Mapping[str, Any]) -> Asked:
        """What a query of an alarm asks for; a plain alarm is one itself."""
        stat = query["MetricStat"]
        metric = stat.get("Metric", stat)
        return Asked(
            namespace=metric["Namespace"],
            name=metric["MetricName"],
            dimensions=tuple((d["Name"], self.template.text(d["Value"])) for d in metric.get("Dimensions", ())),
            statistic=stat.get("Stat") or stat.get("ExtendedStatistic") or stat.get("Statistic"),
            period_seconds=stat["Period"],
        )

    def series(self, metrics: Sequence[Asked]) -> Mapping[Asked, Series]:
        """What CloudWatch has of them."""
        lines = {
            metric: Line(id=f"m{n}", label=metric.name, metric=metric, period_seconds=metric.period_seconds)
            for n, metric in enumerate(metrics)
        }
        found = data.fetch(self.deployment.cloudwatch, list(lines.values()), self.span())
        return {metric: found[line.id][0].series for metric, line in lines.items()}

    def span(self) -> data.Span:
        """Since before the stack was there."""
        now = datetime.now(UTC)
        return data.Span(begin=now - timedelta(hours=3), end=now + timedelta(minutes=1))


@pytest.fixture(scope="module")
def load(stack: LocalStack, session: boto3.Session) -> Iterator[Load]:
    """Plays the load, and waits until the bridge has fed what it left in the logs."""
    site = Site(stack, session, {})
    try:
        _played(site)
        _letters(site)
        site.sweep()
    finally:
        site.close()
    _told(stack, session)
    found = deployed.find("local", stack, {})
    made = Load(
        deployment=found,
        template=synthesise({"stack": stack.stack}),
        session=session,
        endpoint=stack.endpoint,
    )
    ours = [metric for metric in made.asked() if metric.namespace == NAMESPACE]
    until = time.monotonic() + FED_SECONDS
    while time.monotonic() < until and not all(any(v is not None for v in s) for s in made.series(ours).values()):
        time.sleep(1)
    yield made
    found.cloudwatch.close()


def _played(site: Site) -> None:
    """In every class and lane a run that succeeds; in every class others that fail, are cancelled, crash, and maps."""
    client = site.client
    ids: list[str] = []
    for name, of_class in site.settings.classes.items():
        for document in _documents(name):
            client.apply(document)
        ids += [client.submit(f"fine-{name}", lane=lane)["id"] for lane in of_class.lanes]
        ids += [client.submit(f"{kind}-{name}")["id"] for kind in ("fails", "retries", "late", "wide")]
        waiting = client.submit(f"waits-{name}", key=f"once-{name}")["id"]
        assert client.submit(f"waits-{name}", key=f"once-{name}")["id"] == waiting
        client.cancel(waiting)
        ids.append(waiting)
    site.ended(ids, seconds=120)
    client.get(ids[0])  # by a function of its own
    # By themselves: with its process others would lose the start of a map, and look again only after minutes.
    site.ended([client.submit(f"dies-{name}")["id"] for name in site.settings.classes], seconds=120)


def _documents(name: str) -> Iterator[dict[str, Any]]:
    """The workflows of a class."""

    def flow(kind: str, step: dict[str, Any], **given: Any) -> dict[str, Any]:
        return {"name": f"{kind}-{name}", "class": name, "steps": {"a": step}, **given}

    yield flow("fine", {"task": "chaos.output", "input": {"bytes": 10_000}})  # an output for the bucket
    yield flow("fails", {"task": "chaos.fail", "input": {"retryable": False}})
    yield flow("retries", {"task": "chaos.fail", "input": {"times": 1}, "retry": {"max_attempts": 2, "backoff": "1ms"}})
    yield flow("late", {"task": "chaos.sleep", "input": {"ms": 60_000}}, timeout="1s")
    yield flow("dies", {"task": "chaos.crash", "input": {"times": 1}})
    yield flow("waits", {"wait": {"signal": "never", "timeout": "1h"}})
    yield flow("wide", {"map": {"over": [1, 2, 3], "task": "core.echo", "via": "stepfunctions"}})


def _letters(site: Site) -> None:
    """Dead letters: one of a run that ended long ago, and one that is no message of ours."""
    wake = Wake(tenant="local", run_id="r" + "a" * 25, submission="s", class_name="model")
    arn = f"arn:aws:sqs:us-east-1:000000000000:{site.stack.queues['model'][DEAD].rpartition('/')[2]}"
    facts = {"eventSourceARN": arn, "receiptHandle": "r", "attributes": {"ApproximateReceiveCount": "11"}}
    bodies = {"wake": encode(wake), "strange": "not ours"}
    records = [{**facts, "messageId": name, "body": body} for name, body in bodies.items()]
    told = site.invoke("deadletter", {"Records": records})
    assert told == {"batchItemFailures": [{"itemIdentifier": "strange"}]}


def _told(stack: LocalStack, session: boto3.Session) -> None:
    """What is rare, played in memory with the stack's settings; the lines go into the log of a function."""
    settings = Settings.from_env(stack.env)
    with telling.told(settings) as lines:
        asyncio.run(telling.refusals())
        for class_name in settings.classes:
            telling.of_holders(settings, class_name)
        telling.of_a_broken_module()
        telling.of_schedules((Metric.OUTAGES, Metric.SLOTS_LEAKED, Metric.SLOTS_REPAIRED, Metric.REPAIRED))
    logs = session.client("logs", endpoint_url=stack.endpoint)
    where = {"logGroupName": stack.log_groups["sweeper"], "logStreamName": f"in-memory-{uuid.uuid4().hex}"}
    logs.create_log_stream(**where)
    at = int(time.time() * 1000)
    logs.put_log_events(**where, logEvents=[{"timestamp": at, "message": line} for line in lines])
    logs.close()


def test_every_metric_of_ours_on_the_page_and_in_the_alarms_has_data_under_exactly_its_dimensions(load: Load) -> None:
    ours = [metric for metric in load.asked() if metric.namespace == NAMESPACE]
    # A query without dimensions would match everything here, and nothing in AWS.
    assert all(metric.dimensions and all(name and value for name, value in metric.dimensions) for metric in ours)
    shown = {metric.name for metric in load.shown() if metric.namespace == NAMESPACE}
    assert len(shown) > 30
    series = load.series(ours)
    empty = [
        f"{metric.name} {dict(metric.dimensions)}"
        for metric, values in series.items()
        if all(value is None for value in values)
    ]
    assert not empty
    listed = {
        (metric["MetricName"], tuple(sorted((d["Name"], d["Value"]) for d in metric["Dimensions"])))
        for page in load.deployment.cloudwatch.get_paginator("list_metrics").paginate(Namespace=NAMESPACE)
        for metric in page["Metrics"]
    }
    assert {(metric.name, tuple(sorted(metric.dimensions))) for metric in ours} <= listed


def test_metrics_of_aws_are_asked_for_under_documented_dimensions(load: Load) -> None:
    theirs = [metric for metric in load.asked() if metric.namespace != NAMESPACE]
    assert theirs
    for metric in theirs:
        assert {name for name, _ in metric.dimensions} in DIMENSIONS[metric.namespace], metric
        assert all(value for _, value in metric.dimensions), metric


def test_every_expression_of_the_page_has_a_value_of_what_its_widget_has(load: Load) -> None:
    widgets = [widget for widget in load.deployment.page.widgets if any(line.expression for line in widget.lines)]
    assert widgets
    for widget in widgets:
        known: dict[str, float | None] = {line.id: 1.0 for line in widget.lines if line.metric is not None}
        waiting = {line.id: line.expression for line in widget.lines if line.expression}
        while ready := [id_ for id_, text in waiting.items() if not set(metric_math.names(text)) & set(waiting)]:
            known |= {id_: metric_math.value(waiting.pop(id_), known) for id_ in ready}
        assert not waiting, widget.title
        assert None not in known.values(), widget.title


def test_a_widget_whose_expressions_nobody_computes_shows_what_goes_into_them(load: Load) -> None:
    computed = [widget for widget in load.deployment.page.widgets if any(line.expression for line in widget.lines)]
    filled = [data.filled(load.deployment.cloudwatch, widget, load.span()) for widget in computed]
    ours = [
        one for one in filled if any(line.metric and line.metric.namespace == NAMESPACE for line in one.widget.lines)
    ]
    assert ours
    for one in ours:
        assert any(curve.values for curve in one.curves), one.widget.title


def value_of(queries: Sequence[Mapping[str, Any]], given: Mapping[str, float]) -> float:
    """What an alarm's expression is of these values by id."""
    (expression,) = (query["Expression"] for query in queries if query.get("Expression"))
    return metric_math.value(expression, given)


def breaches(alarm: Mapping[str, Any], value: float) -> bool:
    threshold: float = alarm["Threshold"]
    return {
        "GreaterThanThreshold": value > threshold,
        "GreaterThanOrEqualToThreshold": value >= threshold,
        "LessThanThreshold": value < threshold,
        "LessThanOrEqualToThreshold": value <= threshold,
    }[alarm["ComparisonOperator"]]


def test_every_alarm_on_an_expression_is_quiet_without_trouble_and_rings_when_all_is_trouble(load: Load) -> None:
    for name, alarm in load.alarms().items():
        if "Metrics" not in alarm:
            continue
        ids = [query["Id"] for query in alarm["Metrics"] if "MetricStat" in query]
        good = dict.fromkeys(ids, 0.0) | {id_: 1_000.0 for id_ in ids if id_ in ("succeeded", "taken")}
        bad = {id_: 0.0 if id_ in ("succeeded", "taken") else 1_000.0 for id_ in ids}
        quiet, rings = value_of(alarm["Metrics"], good), value_of(alarm["Metrics"], bad)
        assert (breaches(alarm, quiet), breaches(alarm, rings)) == (False, True), name


def test_every_alarm_on_a_single_metric_follows_its_threshold(load: Load) -> None:
    """On a twin of each, in a namespace of its own: the emulator's alarms ignore dimensions, so they prove no names."""
    cloudwatch: Any = load.deployment.cloudwatch
    kept = ("ComparisonOperator", "EvaluationPeriods", "MetricName", "Period", "Statistic", "Threshold")
    deployed_ones = cloudwatch.describe_alarms(AlarmNames=list(load.deployment.alarm_names), MaxRecords=100)
    assert len(deployed_ones["MetricAlarms"]) == len(load.deployment.alarm_names)
    for alarm in deployed_ones["MetricAlarms"]:
        assert alarm["AlarmActions"], alarm["AlarmName"]
        slot = {"Namespace": f"Test-{uuid.uuid4().hex[:8]}", "AlarmName": f"twin-of-{alarm['AlarmName']}"}
        cloudwatch.put_metric_alarm(**slot, **{name: alarm[name] for name in kept})
        states = []
        # A period's values are taken together: from below a ceiling over it, from below a floor up to it.
        over = breaches(alarm, alarm["Threshold"] + 1)
        for value in (alarm["Threshold"], alarm["Threshold"] + 1) if over else (0.0, alarm["Threshold"]):
            put = [{"MetricName": alarm["MetricName"], "Value": float(value)}]
            cloudwatch.put_metric_data(Namespace=slot["Namespace"], MetricData=put)
            twin = cloudwatch.describe_alarms(AlarmNames=[slot["AlarmName"]])["MetricAlarms"][0]
            states.append(twin["StateValue"])
        cloudwatch.delete_alarms(AlarmNames=[slot["AlarmName"]])
        assert states == (["OK", "ALARM"] if over else ["ALARM", "OK"]), alarm["AlarmName"]


def test_the_command_tells_the_page_as_json_and_draws_it(load: Load, stack: LocalStack) -> None:
    picture = Path(stack.ledger).parent / "page.png"
    shown = fanfold(stack, "dashboard", "--png", str(picture), "--json", "--period", "60", "--hours", "1")
    assert (shown.returncode, picture.read_bytes()[:8]) == (0, b"\x89PNG\r\n\x1a\n")
    told = json.loads(shown.stdout)
    titles = [widget.title for widget in load.deployment.page.widgets]
    assert [widget["title"] for widget in told["widgets"]] == titles
    assert {alarm["name"] for alarm in told["alarms"]} == set(load.deployment.alarm_names)
