"""What AWS refused for load in the last hours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from fanfold.adapters.aws.run_items import DUE_INDEX, LIST_INDEX
from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding

HOURS = 3
LEAST = 10
"""A burst throttles a few calls while Lambda scales; which is normal (the alarm knows the same number)."""


def find(deployment: Deployment) -> Iterator[Finding]:
    """A function that Lambda refused more than a few calls, and a table or index that DynamoDB refused any."""
    table = {"TableName": deployment.settings.table}
    asked = [
        (f"the function {name}", LEAST, _query("AWS/Lambda", "Throttles", {"FunctionName": each["FunctionName"]}))
        for name, each in deployment.functions.items()
        if not _bounded(deployment, name)
    ]
    asked += [
        (f"the table ({kind})", 0, _query("AWS/DynamoDB", f"{kind}ThrottleEvents", table)) for kind in ("Read", "Write")
    ]
    asked += [
        (
            f"the index {index} (Write)",
            0,
            _query("AWS/DynamoDB", "WriteThrottleEvents", {**table, "GlobalSecondaryIndexName": index}),
        )
        for index in (LIST_INDEX, DUE_INDEX)
    ]
    answer = deployment.client("cloudwatch").get_metric_data(
        MetricDataQueries=[{"Id": f"m{n}", "MetricStat": stat} for n, (_, _, stat) in enumerate(asked)],
        StartTime=deployment.now - timedelta(hours=HOURS),
        EndTime=deployment.now + timedelta(minutes=1),
    )
    sums = {each["Id"]: sum(each["Values"]) for each in answer["MetricDataResults"]}
    for number, (what, least, _) in enumerate(asked):
        refused = sums.get(f"m{number}", 0)
        if refused > least:
            section = "throttled-functions" if "function" in what else "table-throttles"
            yield Finding(
                what=f"{what[0].upper()}{what[1:]} was throttled {refused:.0f} times in the last {HOURS} hours.",
                why="Callers got 503, runs waited, and throttled deliveries count as receives.",
                fix=f"See docs/operations.md#{section}.",
            )


def _bounded(deployment: Deployment, name: str) -> bool:
    """Whether it works on batches of maps that have a bound: calls beyond that are refused, and asked for again."""
    of_class = deployment.settings.classes.get(name.removeprefix("fanout-"))
    return name.startswith("fanout-") and of_class is not None and of_class.map_concurrency > 0


def _query(namespace: str, name: str, dimensions: Mapping[str, str]) -> Mapping[str, Any]:
    return {
        "Metric": {
            "Namespace": namespace,
            "MetricName": name,
            "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
        },
        "Period": 3_600,
        "Stat": "Sum",
    }


CHECK = Check(name="throttles", looks_at=f"calls that AWS refused for load in the last {HOURS} hours", find=find)
