"""Compares the concurrency of all functions with reservations and the account's quota."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from fanfold.doctor.deployment import Deployment, unqualified
from fanfold.doctor.finding import Check, Finding
from fanfold.doctor.mappings import DEPLOY, OFF
from fanfold.engine.record.messages import RESUME

CALLED = ("api", "authorizer", "watch")
"""The functions that serve callers. Nobody else can use their reserved concurrency."""
SWEEPER = 1
"""It runs once a minute, for less than that."""
LEAST_FOR_CALLERS = 10
"""A deployment whose API has not even so much left beside its workers answers 503 as soon as those are busy."""


def find(deployment: Deployment) -> Iterator[Finding]:
    """Functions that may exceed the quota, or that others may leave without concurrency."""
    client = deployment.client("lambda")
    account = client.get_account_settings()["AccountLimit"]
    reserved = {
        name: client.get_function_concurrency(FunctionName=each["FunctionName"]).get("ReservedConcurrentExecutions")
        for name, each in deployment.functions.items()
    }
    mapped: dict[str, int] = defaultdict(int)
    resumes: dict[str, int] = defaultdict(int)
    yield from _mapped(deployment, mapped, resumes)
    for function, limit in mapped.items():
        yield from _of_mappings(function, limit, resumes[function], reserved[function])
    bounded = {**mapped, "sweeper": SWEEPER, "watch": deployment.settings.max_watchers}
    taken = {name: most for name, most in bounded.items() if reserved.get(name, most) is None}
    yield from _no_room(
        taken,
        callers=[name for name in CALLED if name in reserved and reserved[name] is None],
        room=account["UnreservedConcurrentExecutions"],
        quota=account["ConcurrentExecutions"],
    )
    if deployment.kept:
        yield from _unbounded(reserved)


def _mapped(deployment: Deployment, most: dict[str, int], resumes: dict[str, int]) -> Iterator[Finding]:
    """The concurrency of each function's mappings, and the part of its resume queue."""
    by_arn = {queue.arn: queue for queue in deployment.queues}
    names = {unqualified(function["FunctionArn"]): name for name, function in deployment.functions.items()}
    for _, mapping in deployment.mappings:
        queue, function = by_arn.get(mapping["EventSourceArn"]), names.get(unqualified(mapping["FunctionArn"]))
        limit = mapping.get("ScalingConfig", {}).get("MaximumConcurrency")
        if queue is None or function is None or mapping["State"] in OFF:
            continue
        if limit is None:
            yield Finding(
                what=f"The mapping of queue {queue} has no maximum concurrency.",
                why="One full lane uses the account's whole concurrency; everything else is throttled.",
                fix=DEPLOY,
            )
            continue
        most[function] += limit
        resumes[function] += limit if queue.role == RESUME else 0


def _of_mappings(function: str, limit: int, resume: int, reserved: int | None) -> Iterator[Finding]:
    if reserved is not None and reserved < limit:
        yield Finding(
            what=f"{function} has {reserved} executions reserved, its mappings may use {limit}.",
            why="Throttled deliveries count as receives; ten of them are a dead letter.",
            fix=f"Reserve at least {limit} (`reserved_concurrency` of the class), or lower its lanes and `resume`.",
        )
    # The check of mappings reports a resume queue without a mapping.
    if function.startswith("worker-") and 0 < 2 * resume < limit:
        yield Finding(
            what=f"The resume queue of {function} gets {resume} of {limit} concurrent batches; it needs at least half.",
            why="Runs that have begun wait behind runs that have not (R7).",
            fix="Raise `resume` of the class, or lower its lanes, and deploy.",
        )


def _no_room(taken: Mapping[str, int], *, callers: list[str], room: int, quota: int) -> Iterator[Finding]:
    """Compare limited functions without a reservation, and a little for callers, with the unreserved concurrency."""
    most = sum(taken.values()) + (LEAST_FOR_CALLERS if callers else 0)
    if most > room:
        parts = [f"{name} {limit}" for name, limit in sorted(taken.items())]
        parts += [f"{', '.join(callers)} at least {LEAST_FOR_CALLERS}"] if callers else []
        yield Finding(
            what=f"The functions may use {most} concurrent executions, the account has {room} that nobody reserved"
            f" (quota {quota}): {', '.join(parts)}.",
            why="Under load Lambda throttles the workers and the API; throttled deliveries count as receives.",
            fix="Raise the quota (Service Quotas, Lambda, concurrent executions), or lower the classes' concurrency.",
        )


def _unbounded(reserved: Mapping[str, int | None]) -> Iterator[Finding]:
    maps = [name for name in sorted(reserved) if name.startswith("fanout-") and reserved[name] is None]
    if maps:
        callers = [name for name in CALLED if name in reserved and reserved[name] is None]
        alone = f", and {', '.join(callers)} have nothing reserved" if callers else ""
        yield Finding(
            what=f"Nothing limits the concurrency of distributed maps ({', '.join(maps)}){alone}.",
            why="A few maps can use the account's whole concurrency: mappings are throttled"
            + (", and callers get 503." if callers else "."),
            fix="Give the classes a `map_concurrency`, callers `-c reserved=…` (docs/deployment.md#lambda-concurrency);"
            " where the quota is too small for reservations, raise it.",
        )


CHECK = Check(
    name="concurrency", looks_at="what functions may take against reservations and the account's quota", find=find
)
