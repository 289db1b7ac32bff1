"""How long logs are kept."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding, Remedy

DAYS = 30
"""What a group gets for which the template states nothing."""


def find(deployment: Deployment) -> Iterator[Finding]:
    """A log group that is never emptied, or that keeps more or less than the template asks for."""
    client = deployment.client("logs")
    for group in deployment.all("AWS::Logs::LogGroup"):
        name = group.physical_id
        told = client.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
        days = next((each.get("retentionInDays") for each in told if each["logGroupName"] == name), 0)
        wanted = int(group.properties.get("RetentionInDays", DAYS))
        if days == 0:
            yield Finding(
                what=f"The log group {name} is gone.", why="What its function says is lost.", fix="Deploy again."
            )
        elif days != wanted:
            shorter = days is not None and days < wanted
            kept = "for ever" if days is None else f"for {days} days"
            by_hand = f"aws logs put-retention-policy --log-group-name {name} --retention-in-days {wanted}"
            yield Finding(
                what=f"The log group {name} keeps logs {kept}, the template says {wanted} days.",
                why="Logs kept for ever are paid for ever; those kept too short are missing when they are needed.",
                fix=f"Set its retention to {wanted} days."
                if shorter
                else f"Unless somebody keeps them on purpose: {by_hand}. It deletes what is older.",
                # Only what deletes nothing.
                remedy=Remedy(
                    does=f"set the retention of {name} to {wanted} days",
                    apply=partial(client.put_retention_policy, logGroupName=name, retentionInDays=wanted),
                )
                if shorter
                else None,
            )


CHECK = Check(name="logs", looks_at="how long logs are kept", find=find)
