"""`fanfold doctor`."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from fanfold.commands import output
from fanfold.commands.output import JsonFlag
from fanfold.local.local_stack import LocalError
from fanfold.text.printable import shown

if TYPE_CHECKING:
    from fanfold.doctor.examination import Diagnosis
    from fanfold.doctor.finding import Remedy

FOUND = 1
"""The exit status when something is not as it should be."""


def doctor(
    stack: Annotated[
        str | None, typer.Option(metavar="NAME|local", help="The deployed stack; default: the local one.")
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", metavar="", help="Fix what is safe to fix, after asking.")] = False,
    yes: Annotated[bool, typer.Option("--yes", metavar="", help="Do not ask before fixing.")] = False,
    json_: JsonFlag = False,
) -> None:
    """Look at a deployment that is up: what is wrong, why it matters, how to fix it.

    It reads with your AWS credentials (for the local stack, with its own)
    and changes nothing without --fix. It looks at

    \b
    - the deployment: queue visibility, redrive policies, mappings,
      concurrency, recursion guard, schedules, code and settings of all
      functions, time to live and backups, alarms, log retention
    - what happened to it: throttles, dead letters, old tokens
    - its runs: overdue or of newer code, lanes that nobody works on,
      queue slots, the clock

    --fix does only what is safe while runs are under way and harmless when
    done twice: queue attributes, the recursion guard, time to live, backups,
    log retention, muted alarms, rules that are off, mappings that were
    deleted, revoking expired tokens, sending wakes for overdue runs.

    Exit statuses: 0 nothing is wrong (any more), 1 something is, 2 usage,
    4 it could not be looked at.
    """
    if yes and not fix:
        raise typer.BadParameter("--yes is about --fix")
    if fix and json_ and not yes:
        raise typer.BadParameter("--fix --json needs --yes: nobody can be asked")
    from fanfold.doctor.deployment import Deployment
    from fanfold.doctor.examination import examine
    from fanfold.service.telemetry.reporting import set_level

    set_level("CRITICAL")  # what the service would log is said here as findings
    deployment = Deployment.of(stack, output.aws_stack(stack), os.environ, now=datetime.now(UTC))
    try:
        diagnosis = examine(deployment)
        if not json_:
            _show(diagnosis, deployment.stack_name)
        fixed = _fix(diagnosis, ask=not yes) if fix else {}
    finally:
        deployment.close()
    if json_:
        _emit(diagnosis, deployment.stack_name, fixed)
    if len(diagnosis.findings) > sum(failure is None for failure in fixed.values()):
        sys.exit(FOUND)


def _show(diagnosis: Diagnosis, name: str) -> None:
    for check, finding in diagnosis.findings:
        output.tell(f"{check.name}: {shown(finding.what)}")
        output.tell(f"    why: {shown(finding.why)}")
        output.tell(f"    fix: {shown(finding.fix)}{' (--fix does it)' if finding.remedy is not None else ''}")
    for check, reason in diagnosis.not_offered:
        output.tell(f"{check.name}: not offered here: {shown(reason)}")
    count = len(diagnosis.findings)
    output.tell(f"{name}: {'nothing is wrong' if count == 0 else '1 finding' if count == 1 else f'{count} findings'}.")


def _fix(diagnosis: Diagnosis, *, ask: bool) -> dict[int, str | None]:
    """Apply the remedies there are; gives, by the number of the finding, what was answered instead (None: done)."""
    from botocore.exceptions import BotoCoreError, ClientError

    from fanfold.engine.errors import FanfoldError

    remedies: dict[int, Remedy] = {
        number: finding.remedy for number, (_, finding) in enumerate(diagnosis.findings) if finding.remedy is not None
    }
    if not remedies:
        if diagnosis.findings:
            output.say("There is nothing that can be fixed from here.")
        return {}
    if ask:
        for remedy in remedies.values():
            output.say(f"  - {shown(remedy.does)}")
        if not typer.confirm(f"Do {'this' if len(remedies) == 1 else f'these {len(remedies)} things'}?", err=True):
            raise LocalError("Nothing was changed.", status=FOUND)
    outcome: dict[int, str | None] = {}
    for number, remedy in remedies.items():
        try:
            remedy.apply()
        except (BotoCoreError, ClientError, FanfoldError) as error:
            outcome[number] = str(error)
            output.say(f"failed: {remedy.does}: {error}")
        else:
            outcome[number] = None
            output.say(f"done: {remedy.does}")
    return outcome


def _emit(diagnosis: Diagnosis, name: str, fixed: dict[int, str | None]) -> None:
    from fanfold.doctor.examination import CHECKS

    output.emit(
        {
            "stack": name,
            "checks": [check.name for check in CHECKS],
            "findings": [
                {
                    "check": check.name,
                    "what": finding.what,
                    "why": finding.why,
                    "fix": finding.fix,
                    "fixable": finding.remedy is not None,
                    **({"fixed": fixed[number] is None, "failure": fixed[number]} if number in fixed else {}),
                }
                for number, (check, finding) in enumerate(diagnosis.findings)
            ],
            "not_offered": [{"check": check.name, "reason": reason} for check, reason in diagnosis.not_offered],
        }
    )
