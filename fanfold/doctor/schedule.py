"""The rules that call the sweeper each minute and send wakes for ended maps."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding, Remedy


def find(deployment: Deployment) -> Iterator[Finding]:
    """A rule that is switched off though the template has it on."""
    client = deployment.client("events")
    for rule in deployment.all("AWS::Events::Rule"):
        told = client.describe_rule(Name=rule.physical_id.rpartition("|")[2])
        if told["State"] != rule.properties.get("State", "ENABLED"):
            sweeps = "ScheduleExpression" in rule.properties
            yield Finding(
                what=f"The rule {told['Name']} is switched off.",
                why="Without the sweeper, a lost message or a dead worker's run is nobody's business any more."
                if sweeps
                else "A map whose execution breaks is noticed only at its next look, up to an hour later.",
                fix="Enable it: nothing has to be made up for.",
                remedy=Remedy(
                    does=f"enable the rule {told['Name']}", apply=partial(client.enable_rule, Name=told["Name"])
                ),
            )


CHECK = Check(name="schedule", looks_at="the sweeper's schedule and the rule for broken maps", find=find)
