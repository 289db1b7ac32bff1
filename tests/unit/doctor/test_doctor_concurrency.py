"""The doctor on the account's concurrency: everything that takes of it counts, and callers have some left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fanfold.doctor.concurrency import find
from fanfold.doctor.deployment import Queue
from fanfold.service.settings import Settings

WORKER, DEAD_LETTER, MAPS = "worker-model", "deadletter", "fanout-model"
CALLED = ("api", "authorizer", "watch")
ALL = (*CALLED, WORKER, DEAD_LETTER, MAPS, "sweeper")


class Lambda:
    def __init__(self, *, quota: int, reserved: Mapping[str, int]) -> None:
        self._quota, self._reserved = quota, reserved

    def get_account_settings(self) -> Any:
        free = self._quota - sum(self._reserved.values())
        return {"AccountLimit": {"ConcurrentExecutions": self._quota, "UnreservedConcurrentExecutions": free}}

    def get_function_concurrency(self, *, FunctionName: str) -> Any:
        reserved = self._reserved.get(FunctionName)
        return {} if reserved is None else {"ReservedConcurrentExecutions": reserved}


class Deployed:
    """A deployment of one class: 60 executions for its queues (30 of them `resume`), two for its dead letters."""

    def __init__(self, *, quota: int = 1_000, kept: bool = True, **reserved: int) -> None:
        self.kept = kept
        self.settings = Settings(max_watchers=100)
        self._lambda = Lambda(quota=quota, reserved={name.replace("_", "-"): most for name, most in reserved.items()})
        self.functions = {name: {"FunctionName": name, "FunctionArn": arn(name)} for name in ALL}
        takers = {"normal": (WORKER, 30), "resume": (WORKER, 30), "dead": (DEAD_LETTER, 2)}
        self.queues = tuple(
            Queue(class_name="model", role=role, url="url", attributes={"QueueArn": role}) for role in takers
        )
        self.mappings = [
            (
                None,
                {
                    "EventSourceArn": role,
                    "FunctionArn": f"{arn(name)}:live",
                    "State": "Enabled",
                    "ScalingConfig": {"MaximumConcurrency": most},
                },
            )
            for role, (name, most) in takers.items()
        ]

    def client(self, service: str) -> Lambda:
        assert service == "lambda"
        return self._lambda


def arn(name: str) -> str:
    return f"arn:aws:lambda:us-east-1:123456789012:function:{name}"


def found(deployed: Deployed) -> list[str]:
    return [finding.what for finding in find(deployed)]  # type: ignore[arg-type]  # as much of one as is asked


def test_maps_without_a_bound_are_told_of_with_the_callers_they_leave_nothing() -> None:
    (alone,) = found(Deployed())
    assert (
        alone == "Nothing limits the concurrency of distributed maps (fanout-model),"
        " and api, authorizer, watch have nothing reserved."
    )
    (apart,) = found(Deployed(api=200, authorizer=20, watch=120))
    assert apart == "Nothing limits the concurrency of distributed maps (fanout-model)."
    assert found(Deployed(fanout_model=40)) == []
    assert found(Deployed(kept=False)) == [], "a stage to try things in may be as it ships"


@pytest.mark.parametrize(
    ("quota", "reserved", "may_use"),
    [
        (173, {}, None),  # 62 of the mappings, the sweeper, 100 that wait, 10 for callers
        (172, {}, 173),
        (403, {"api": 200, "authorizer": 20, "watch": 120}, None),  # 63 of the 63 that are left
        (402, {"api": 200, "authorizer": 20, "watch": 120}, 63),
        (382, {"api": 200, "authorizer": 20}, 173),  # whoever waits may find no room
        (472, {"fanout_model": 300}, 173),
        (472, {"fanout_model": 240, "worker_model": 60}, None),  # 103, and 10 for callers, of 172
    ],
)
def test_everything_that_takes_of_the_quota_counts(quota: int, reserved: dict[str, int], may_use: int | None) -> None:
    told = found(Deployed(quota=quota, kept=False, **reserved))
    assert len(told) == (may_use is not None)
    if may_use:
        room = quota - sum(reserved.values())
        assert told[0].startswith(f"The functions may use {may_use} concurrent executions, the account has {room} that")
        assert ("worker-model 60" in told[0], "sweeper 1" in told[0]) == (True, True)
