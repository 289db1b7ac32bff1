"""Restores, after a deployment, what emulators lose of the template, with the doctor's remedies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fanfold.doctor import recursion, table
from fanfold.doctor.deployment import Deployment
from fanfold.doctor.examination import examine
from fanfold.local.local_stack import LocalStack


def complete(stack: LocalStack, *, now: datetime) -> Sequence[str]:
    """Set the recursion guard and time to live as the template has them; says what was done. Safe to repeat."""
    deployment = Deployment.of("local", stack, {}, now=now)
    try:
        found = examine(deployment, (recursion.CHECK, table.CHECK)).findings
        remedies = [finding.remedy for _, finding in found if finding.remedy is not None]
        for remedy in remedies:
            remedy.apply()
    finally:
        deployment.close()
    return [remedy.does for remedy in remedies]
