"""How an attempt ends: with an output that is JSON, or with a fault."""

from __future__ import annotations

import json
from dataclasses import dataclass

from functions.engine.errors import Fail, Retry
from functions.engine.run import Fault
from functions.engine.values import Json, dump_payload

MAX_MESSAGE = 1_000
"""Characters of an exception's message that are recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The task returned: `output` as JSON says it, and `encoded`, that JSON in compact ASCII."""

    output: Json
    encoded: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The attempt failed; `after` is the delay in seconds the task asked for before the next one."""

    fault: Fault
    retryable: bool
    after: float | None = None


Outcome = Succeeded | Failed


def encoded(value: Json, limit: int) -> Outcome:
    """What a task returned, as an outcome: `Failed` for what is no JSON or has over `limit` bytes of it.

    The output is what the JSON says, so that this worker and the next, which reads it, see the same.
    """
    try:
        data = dump_payload(value)
        output = json.loads(data) if len(data) <= limit else None
    except (TypeError, ValueError) as error:
        return failed("invalid_output", f"the task's output is no JSON: {error}", retryable=False)
    if len(data) > limit:
        detail = f"the task's output has {len(data)} bytes of JSON; the limit is {limit}"
        return failed("output_too_large", detail, retryable=False)
    return Succeeded(output=output, encoded=data)


def raised(error: BaseException) -> Failed:
    """What a task raised, as an outcome of the exception's class; `Fail` and `Retry` say what comes next."""
    name = type(error).__name__
    try:
        message = str(error)
    except Exception as broken:  # a task's own exception class; its failure must be recorded all the same
        message = f"{name}, whose message can't be shown: {type(broken).__name__}"
    match error:
        case Fail():
            return failed(name, message or name, retryable=False)
        case Retry(after=after):
            return failed(name, message or name, retryable=True, after=_seconds(after))
        case _:
            return failed(name, message or name, retryable=True)


def _seconds(after: object) -> float | None:
    """A delay the task asked for; what is no finite number of seconds from 0 leaves it to the step's backoff."""
    if isinstance(after, int | float) and 0 <= after < float("inf"):
        return float(after)
    return None


def failed(kind: str, message: str, *, retryable: bool, after: float | None = None) -> Failed:
    """A fault of this kind, its message cut to a length that fits a record."""
    return Failed(fault=Fault(type=kind, message=message[:MAX_MESSAGE]), retryable=retryable, after=after)
