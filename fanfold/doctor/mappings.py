"""The event source mappings: who takes from which queue, and how."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from fanfold.doctor.deployment import Deployment, Queue
from fanfold.doctor.finding import Check, Finding, Remedy
from fanfold.doctor.redrive import DEAD_DAYS, SOURCE_DAYS
from fanfold.doctor.resource import Resource
from fanfold.engine.record.messages import DEAD, RESUME

PARTIAL = "ReportBatchItemFailures"
DEPLOY = "Deploy the stack again."
OFF = ("Disabled", "Disabling")
LIMITS = ("BatchSize", "Enabled", "FunctionResponseTypes", "MaximumBatchingWindowInSeconds", "ScalingConfig")
"""What the template says of a mapping beside its two ends, in Lambda's own words."""


def find(deployment: Deployment) -> Iterator[Finding]:
    """A queue nobody takes from, or not as the protocol wants it."""
    by_arn = {mapping["EventSourceArn"]: (resource, mapping) for resource, mapping in deployment.mappings}
    disabled: dict[tuple[str, bool], dict[Queue, str]] = defaultdict(dict)
    lost = {ends[0]: each for each in deployment.lost_mappings if (ends := deployment.ends_of(each)) is not None}
    for queue in deployment.queues:
        if queue.role != DEAD and f"worker-{queue.class_name}" not in deployment.functions:
            continue  # processes work on this class
        if queue in lost:
            yield _lost(deployment, lost[queue], queue)
            continue
        if queue.arn not in by_arn:
            yield Finding(
                what=f"No function takes from queue {queue}.", why="What is in it waits for ever.", fix=DEPLOY
            )
            continue
        resource, mapping = by_arn[queue.arn]
        if mapping["State"] in OFF and resource.properties.get("Enabled", True):
            disabled[queue.class_name, queue.role == DEAD][queue] = mapping["UUID"]
        yield from _of_queue(queue, mapping)
    for (_, dead), of_class in disabled.items():
        yield _disabled(of_class, days=DEAD_DAYS if dead else SOURCE_DAYS)


def _lost(deployment: Deployment, resource: Resource, queue: Queue) -> Finding:
    function = "deadletter" if queue.role == DEAD else f"worker-{queue.class_name}"
    return Finding(
        what=f"Mapping {resource.physical_id} was deleted: function {function} takes nothing from queue {queue}"
        f" of class {queue.class_name}.",
        why="What is in that queue waits for ever. CloudFormation does not notice what was deleted behind its back.",
        fix="Make it again as the template has it; docs/operations.md#the-doctor says what deployments then need.",
        remedy=Remedy(
            does=f"make the mapping from queue {queue} to function {function} again",
            apply=partial(_make_again, deployment, resource, queue),
        ),
    )


def _make_again(deployment: Deployment, resource: Resource, queue: Queue) -> None:
    ends = deployment.ends_of(resource)
    if ends is None or deployment.mapping(resource) is not None:
        return
    limits = {name: resource.properties[name] for name in LIMITS if name in resource.properties}
    deployment.client("lambda").create_event_source_mapping(EventSourceArn=queue.arn, FunctionName=ends[1], **limits)


def _disabled(mappings: Mapping[Queue, str], *, days: int) -> Finding:
    queues = ", ".join(map(str, mappings))
    return Finding(
        what=f"Nothing is taken from {queues}: disabled, though the template has it enabled.",
        why=f"Somebody drained the deployment or stopped it: messages wait, and are deleted after {days} days.",
        fix="When the work is done: aws lambda update-event-source-mapping --enabled --uuid "
        + ", then the same with ".join(mappings.values())
        + ". If worker processes take over for good, deploy with `-c mappings=false`.",
    )


def _of_queue(queue: Queue, mapping: Mapping[str, Any]) -> Iterator[Finding]:
    if PARTIAL not in mapping.get("FunctionResponseTypes", ()):
        yield Finding(
            what=f"The mapping of queue {queue} does not report single failures ({PARTIAL}).",
            why="Lambda deletes every message of a batch that was answered, those handed back too; only the sweeper"
            " finds them again.",
            fix=DEPLOY,
        )
    if queue.role == RESUME and mapping["BatchSize"] != 1:
        yield Finding(
            what=f"The mapping of queue {queue} takes {mapping['BatchSize']} messages at once; one is meant.",
            why="A run that kills its worker takes the others of its batch along (R7).",
            fix=DEPLOY,
        )


CHECK = Check(name="mappings", looks_at="who takes from which queue, and how", find=find)
