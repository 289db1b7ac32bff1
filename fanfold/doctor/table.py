"""The table: time to live, point-in-time recovery and deletion protection."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fanfold.adapters.aws.run_items import TTL
from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding, Remedy


def find(deployment: Deployment) -> Iterator[Finding]:
    """A table that only grows, or that can be lost."""
    client = deployment.client("dynamodb")
    table = deployment.settings.table
    told = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    if told["TimeToLiveStatus"] not in ("ENABLED", "ENABLING") or told.get("AttributeName") != TTL:
        lost = " The emulator loses this part of the template." if deployment.emulated else ""
        yield Finding(
            what=f"Rows of the table do not expire (time to live is {told['TimeToLiveStatus'].lower()}).",
            why="Ended runs and sealed segments stay for ever and are paid for; nothing else removes them." + lost,
            fix=f"Enable time to live on the attribute {TTL!r}.",
            remedy=Remedy(
                does=f"enable time to live on {table}",
                apply=partial(
                    client.update_time_to_live,
                    TableName=table,
                    TimeToLiveSpecification={"AttributeName": TTL, "Enabled": True},
                ),
            ),
        )
    if not deployment.kept:
        return
    backups = client.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
    if backups.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus") != "ENABLED":
        yield Finding(
            what=f"The table has no point-in-time recovery, in stage {deployment.settings.stage}.",
            why="What a mistake deletes or overwrites is gone.",
            fix="Enable point-in-time recovery.",
            remedy=Remedy(
                does=f"enable point-in-time recovery of {table}",
                apply=partial(
                    client.update_continuous_backups,
                    TableName=table,
                    PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
                ),
            ),
        )
    if not client.describe_table(TableName=table)["Table"].get("DeletionProtectionEnabled"):
        yield Finding(
            what=f"The table is not protected from deletion, in stage {deployment.settings.stage}.",
            why="One call deletes every run.",
            fix="Switch deletion protection on.",
            remedy=Remedy(
                does=f"protect {table} from deletion",
                apply=partial(client.update_table, TableName=table, DeletionProtectionEnabled=True),
            ),
        )


CHECK = Check(name="table", looks_at="time to live; in stages other than dev also recovery and protection", find=find)
