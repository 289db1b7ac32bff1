"""Redrive policies and how long queues keep messages (R13)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

from fanfold.doctor.deployment import Deployment, Queue
from fanfold.doctor.finding import Check, Finding, Remedy

SOURCE_DAYS = 7
DEAD_DAYS = 14
MAX_RECEIVES = 10
"""What the stack is deployed with (`fanfold/cdk/config.py`; a test holds them together)."""
DAY_SECONDS = 86_400


def find(deployment: Deployment) -> Iterator[Finding]:
    """A queue that gives messages up too early, to nobody, or keeps them too short."""
    for queue in deployment.sources:
        yield from _policy(deployment, queue, deployment.dead[queue.class_name])
    for queue in deployment.queues:
        days = SOURCE_DAYS if queue in deployment.sources else DEAD_DAYS
        kept = int(queue.attributes["MessageRetentionPeriod"])
        if kept < days * DAY_SECONDS:
            yield Finding(
                what=f"Queue {queue} keeps messages for {kept / DAY_SECONDS:.3g} days; {days} are meant.",
                why="A message older than that is deleted unread. A dead letter keeps the age it had, so a dead-letter"
                " queue has to keep longer than the others.",
                fix=f"Set the queue's retention to {days} days.",
                remedy=Remedy(
                    does=f"set the retention of {queue} to {days} days",
                    apply=partial(
                        deployment.client("sqs").set_queue_attributes,
                        QueueUrl=queue.url,
                        Attributes={"MessageRetentionPeriod": str(days * DAY_SECONDS)},
                    ),
                ),
            )


def _policy(deployment: Deployment, queue: Queue, dead: Queue) -> Iterator[Finding]:
    policy = json.loads(queue.attributes.get("RedrivePolicy") or "{}")
    target, receives = policy.get("deadLetterTargetArn"), int(policy.get("maxReceiveCount", 0))
    if target == dead.arn and receives >= MAX_RECEIVES:
        return
    wanted = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": MAX_RECEIVES})
    if target is None:
        what, why = f"Queue {queue} has no dead-letter queue.", "A message nobody can deal with comes back for days."
    elif target != dead.arn:
        what = f"Queue {queue} sends its dead letters to {target.rpartition(':')[2]}, not to {dead}."
        why = "Nobody puts them back on their way from there."
    else:
        what = f"Queue {queue} gives a message up after {receives} receives; {MAX_RECEIVES} are meant."
        why = "A throttled function uses receives up: messages that nothing is wrong with become dead letters."
    yield Finding(
        what=what,
        why=why,
        fix=f"Set its redrive policy: to {dead}, after {MAX_RECEIVES} receives.",
        remedy=Remedy(
            does=f"set the redrive policy of {queue}",
            apply=partial(
                deployment.client("sqs").set_queue_attributes, QueueUrl=queue.url, Attributes={"RedrivePolicy": wanted}
            ),
        ),
    )


CHECK = Check(name="redrive", looks_at="redrive policies and how long queues keep messages", find=find)
