"""One examination: every check in turn, also after a check that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError

from fanfold.adapters.aws.calls import short_code, short_codes
from fanfold.doctor import (
    alarms,
    clock,
    code,
    concurrency,
    letters,
    logs,
    mappings,
    recursion,
    redrive,
    runs,
    schedule,
    slots,
    table,
    taskmodules,
    throttles,
    tokens,
    visibility,
    workers,
)
from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding
from fanfold.engine.errors import InfrastructureError
from fanfold.local.aws_access import unasked
from fanfold.local.local_stack import LocalError

CHECKS: Sequence[Check] = (
    visibility.CHECK,
    redrive.CHECK,
    mappings.CHECK,
    concurrency.CHECK,
    recursion.CHECK,
    schedule.CHECK,
    code.CHECK,
    taskmodules.CHECK,
    table.CHECK,
    alarms.CHECK,
    alarms.FAILURES,
    logs.CHECK,
    tokens.CHECK,
    throttles.CHECK,
    letters.CHECK,
    slots.CHECK,
    workers.CHECK,
    runs.CHECK,
    clock.CHECK,
)
"""Every check, in the order they are told in: how the deployment is made, what happened to it, how its runs are."""

GONE = ("NotFound", "NonExistentQueue", "QueueDoesNotExist", "NoSuch")
"""Parts of the codes by which services say that there is no such thing."""
FORBIDDEN = ("AccessDenied", "Unauthorized", "NotAuthorized")
MISSING = short_codes("UnknownOperation", "NotImplemented", "UnsupportedOperation", "InvalidAction", "404", "501")
"""What emulators answer to a call they do not have (or by the status 501); AWS has them all, everywhere."""
NO_IDENTITY = ("ExpiredToken", "InvalidClientTokenId", "UnrecognizedClient", "SignatureDoesNotMatch", "RequestExpired")
"""What is wrong with credentials is wrong for every check: nothing can be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What an examination came to: findings by check, and the checks an emulator did not allow, with the reason."""

    findings: Sequence[tuple[Check, Finding]]
    not_offered: Sequence[tuple[Check, str]]


def examine(deployment: Deployment, checks: Sequence[Check] = CHECKS) -> Diagnosis:
    """Look at everything. Raises `LocalError`, one sentence, where nothing can be looked at."""
    assert deployment.outputs  # the one call without which there is nothing to look at
    findings: list[tuple[Check, Finding]] = []
    not_offered: list[tuple[Check, str]] = []
    for check in checks:
        try:
            for finding in check.find(deployment):
                findings.append((check, finding))  # what was found before an error is kept
        except (BotoCoreError, ClientError) as error:
            if deployment.emulated and isinstance(error, ClientError) and _is_missing(error):
                not_offered.append((check, f"this endpoint has no {error.operation_name}"))
                continue
            findings.append((check, _unseen(check, error)))
        except InfrastructureError as error:
            # The ports' own errors carry AWS's as their cause; without one it is ours, and as good a sentence.
            findings.append((check, _unseen(check, error.__cause__ or error)))
    return Diagnosis(findings=findings, not_offered=not_offered)


def _is_missing(error: ClientError) -> bool:
    code = short_code(str(error.response.get("Error", {}).get("Code", "")))
    return code in MISSING or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 501


def _unseen(check: Check, error: BaseException) -> Finding:
    """What it means that a check was answered with an error. Raises `LocalError` when it means that for all of them."""
    if isinstance(error, BotoCoreError):
        raise unasked(error) from error
    told = error.response.get("Error", {}) if isinstance(error, ClientError) else {}
    asked = f" ({error.operation_name})" if isinstance(error, ClientError) else ""
    said = f"{told.get('Code', type(error).__name__)}: {told.get('Message') or error}"
    word = str(told.get("Code", ""))
    if any(part in word for part in NO_IDENTITY):
        raise LocalError(f"AWS does not accept these credentials: {said}") from error
    if any(part in word for part in GONE):
        return Finding(
            what=f"Something the stack names is not there{asked}: {said}",
            why=f"Half a stack: whatever needs it fails, and {check.looks_at} can't be looked at.",
            fix="Restore a table or bucket from its backup; deploy with `--revert-drift`, which makes the rest again"
            " (docs/operations.md#the-doctor). Do not delete the stack: its data goes with it.",
        )
    if any(part in word for part in FORBIDDEN):
        return Finding(
            what=f"These credentials may not look{asked}: {said}",
            why=f"Nothing is known about {check.looks_at}.",
            fix="Ask with credentials that may read the deployment (the AWS managed policy ReadOnlyAccess does).",
        )
    return Finding(
        what=f"AWS gave an error instead of an answer{asked}: {said}",
        why=f"Nothing is known about {check.looks_at}.",
        fix="Ask again; if it stays, look up the error.",
    )
