"""The doctor on refused calls: a bound that is at work is no finding."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fanfold.doctor.throttles import find
from fanfold.service.settings import ClassSettings, Settings


class Refusing:
    """CloudWatch that has seen fifty refused calls of everything."""

    def get_metric_data(self, *, MetricDataQueries: list[dict[str, Any]], **_: Any) -> Any:
        return {"MetricDataResults": [{"Id": query["Id"], "Values": [50.0]} for query in MetricDataQueries]}


class Deployed:
    def __init__(self) -> None:
        names = ("api", "worker-model", "fanout-model", "fanout-harness")
        self.now = datetime(2026, 12, 1, tzinfo=UTC)
        self.functions = {name: {"FunctionName": name} for name in names}
        self.settings = Settings(classes={"model": ClassSettings(map_concurrency=40), "harness": ClassSettings()})

    def client(self, service: str) -> Refusing:
        assert service == "cloudwatch"
        return Refusing()


def test_calls_that_the_bound_of_a_classs_maps_refuses_are_no_finding() -> None:
    told = [finding.what for finding in find(Deployed())]  # type: ignore[arg-type]  # as much of one as is asked
    functions = [what.split()[2] for what in told if what.startswith("The function")]
    assert functions == ["api", "worker-model", "fanout-harness"]
