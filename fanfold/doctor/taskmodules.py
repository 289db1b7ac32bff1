"""Whether the deployed functions can call the tasks that runs ask them for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding
from fanfold.service.telemetry.metrics import NAMESPACE, Metric

HOURS = 3


def find(deployment: Deployment) -> Iterator[Finding]:
    """The functions told, in the last hours, of modules of tasks that can't be imported, or of tasks they lack."""
    metric = {
        "Namespace": NAMESPACE,
        "MetricName": Metric.TASKS_NOT_LOADED.value,
        "Dimensions": [{"Name": "service", "Value": deployment.settings.service}],
    }
    answer = deployment.client("cloudwatch").get_metric_data(
        MetricDataQueries=[{"Id": "m0", "MetricStat": {"Metric": metric, "Period": 3_600, "Stat": "Sum"}}],
        StartTime=deployment.now - timedelta(hours=HOURS),
        EndTime=deployment.now + timedelta(minutes=1),
    )
    times = sum(sum(each["Values"]) for each in answer["MetricDataResults"])
    if times > 0:
        yield Finding(
            what=f"Tasks could not be loaded: told {times:.0f} times in the last {HOURS} hours.",
            why="Steps that call them are put off; after missing_task_seconds (three days by default) they fail.",
            fix="See docs/operations.md#tasks-not-loaded: repair the module and deploy again.",
        )


CHECK = Check(name="tasks", looks_at=f"tasks that could not be loaded in the last {HOURS} hours", find=find)
