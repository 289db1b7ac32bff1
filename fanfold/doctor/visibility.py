"""Queue visibility against function timeouts (R5)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fanfold.doctor.deployment import Deployment, unqualified
from fanfold.doctor.finding import Check, Finding, Remedy


def find(deployment: Deployment) -> Iterator[Finding]:
    """A queue whose messages reappear while the function that took them may still work on them."""
    by_arn = {queue.arn: queue for queue in deployment.queues}
    timeouts = {unqualified(each["FunctionArn"]): int(each["Timeout"]) for each in deployment.functions.values()}
    sqs = deployment.client("sqs")
    for _, mapping in deployment.mappings:
        queue = by_arn.get(mapping["EventSourceArn"])
        timeout = timeouts.get(unqualified(mapping["FunctionArn"]))
        if queue is None or timeout is None:
            continue
        visibility = int(queue.attributes["VisibilityTimeout"])
        if visibility < timeout:
            yield Finding(
                what=f"Queue {queue} hides a message for {visibility} s, its function may work for {timeout} s.",
                why="A message a worker has not dealt with yet is delivered again, and receives count towards the"
                " dead-letter queue; AWS refuses to create such a mapping.",
                fix=f"Set the queue's visibility to {timeout} s.",
                remedy=Remedy(
                    does=f"set the visibility of {queue} to {timeout} s",
                    apply=partial(
                        sqs.set_queue_attributes, QueueUrl=queue.url, Attributes={"VisibilityTimeout": str(timeout)}
                    ),
                ),
            )


CHECK = Check(name="visibility", looks_at="queue visibility against function timeouts", find=find)
