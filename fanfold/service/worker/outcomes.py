"""How an attempt ends: with an output that is JSON, or with a failure; or not at all, because it never began."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from fanfold.engine.errors import Fail, Retry
from fanfold.engine.payload import Json, dump_payload
from fanfold.engine.record.run import Failure

MAX_MESSAGE = 1_000
"""Characters of an exception's message that are recorded."""

MAX_TYPE = 200
"""Characters of an exception's type that are recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The task returned: `output` as JSON says it, and `encoded`, that JSON in compact ASCII."""

    output: Json
    encoded: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The attempt failed; `after` is the delay in seconds the task asked for before the next one."""

    failure: Failure
    retryable: bool
    after: float | None = None


@dataclass(frozen=True, slots=True)
class NotBegun:
    """The task was never called: there was no thread for it as long as there was time for the attempt."""


Outcome = Succeeded | Failed | NotBegun


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
    """What a task raised, as an outcome of the exception's class; `Fail` and `Retry` say what comes next.

    They do so in an exception group as well, where `Fail` goes before `Retry`, and the longest delay before the others.
    Nothing that the exception's own code does gets out of here.
    """
    try:
        said = _telling(error)
        after = _seconds(said.after) if isinstance(said, Retry) else None
        return failed(_name(said), _message(said), retryable=not isinstance(said, Fail), after=after)
    except BaseException as broken:  # a task's own exception class; its failure must be recorded all the same
        return failed("Exception", f"an exception that can't be looked at: {type(broken).__name__}", retryable=True)


def _telling(error: BaseException) -> BaseException:
    """The exception that says what comes next: of a group the one in it that does, if there is one."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    told = [each for each in _leaves(error) if isinstance(each, Fail | Retry)]
    final = [each for each in told if isinstance(each, Fail)]
    later = sorted((each for each in told if isinstance(each, Retry)), key=lambda each: _seconds(each.after) or 0.0)
    return (final or later[-1:] or [error])[0]


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The exceptions in a group and in the groups in it, however deep."""
    open_groups: list[BaseExceptionGroup[BaseException]] = [group]
    while open_groups:
        for each in open_groups.pop().exceptions:
            if isinstance(each, BaseExceptionGroup):
                open_groups.append(each)
            else:
                yield each


def _name(error: BaseException) -> str:
    return type(error).__name__


def _message(error: BaseException) -> str:
    name = _name(error)
    try:
        # An exact string: a subclass of the task's own may do anything when it is cut.
        return str.__str__(str(error)) or name
    except BaseException as broken:  # also SystemExit and KeyboardInterrupt, which would end the worker
        return f"{name}, whose message can't be shown: {type(broken).__name__}"


def _seconds(after: object) -> float | None:
    """A delay the task asked for; what is no finite number of seconds from 0 leaves it to the step's backoff."""
    if isinstance(after, int | float) and 0 <= after < float("inf"):
        return float(after)
    return None


def failed(kind: str, message: str, *, retryable: bool, after: float | None = None) -> Failed:
    """A failure of this kind, both cut to lengths that fit a record: `MAX_TYPE` and `MAX_MESSAGE` characters."""
    failure = Failure(type=kind[:MAX_TYPE], message=message[:MAX_MESSAGE])
    return Failed(failure=failure, retryable=retryable, after=after)
