"""Dead letters that stay."""

from __future__ import annotations

from collections.abc import Iterator

from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding


def find(deployment: Deployment) -> Iterator[Finding]:
    """A dead-letter queue that is not empty: the function that empties it deals with all it can read."""
    for queue in deployment.dead.values():
        waiting = sum(
            int(queue.attributes.get(name, 0))
            for name in ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        )
        if waiting:
            yield Finding(
                what=f"{waiting} dead letter{'s' if waiting > 1 else ''} in queue {queue}.",
                why="What can be read goes back to its lane or is dropped within seconds. What stays can't be read, is"
                " newer than the deployed code, or nobody takes it; SQS deletes it after 14 days.",
                fix="See docs/operations.md#dead-letters.",
            )


CHECK = Check(name="letters", looks_at="dead letters that wait", find=find)
