"""Everything that can go wrong, as one tree. A class says what to do about it.

FanfoldError
├── CallerError                  the caller's fault: answer, change nothing
│   ├── InvalidDocument          a workflow document with problems (all of them, with pointers)
│   ├── InvalidCursor            a cursor that is broken or belongs to another listing
│   ├── LimitExceeded            a hard limit of ours or of AWS, named
│   ├── NotFound                 no such run, workflow or token (for this tenant)
│   │   └── PayloadLost          what a record refers to is gone, or is not what was stored: 500
│   ├── KeyReused                an idempotency key that came before with another body
│   ├── LaneDenied               a lane or priority better than the token may use: 403
│   ├── WrongState               the run's state does not allow what an operator asks for: 409
│   ├── SignalsFull              a run holds as many signals as it may, and none was taken: 409
│   └── QueueFull                no slot in the class's queue: 429
├── Conflict                     a conditional write lost; carries the record that won
├── InfrastructureError          not the run's fault: try again later
│   ├── Throttled                definitely refused, nothing was done
│   ├── Unavailable              definitely not done (could not be asked)
│   ├── Unanswered               asked, no answer: it may or may not have been done
│   └── Unreadable               a record, document or object that this code can't read
│       └── NewerSchema          one written by a newer version of the code (R12)
├── IllegalTransition                  a state change that is not in the table: a bug, never a user's fault
└── TaskError                    raised by a task's code to say more than "it failed"
    ├── Retry                    try again, after a delay of the task's choosing
    └── Fail                     do not try again
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class FanfoldError(Exception):
    """Root of every error this package raises on purpose."""


class CallerError(FanfoldError):
    """The caller's fault: the answer says why, and nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationIssue:
    """One thing wrong with a document: an RFC 6901 JSON pointer into it, and a sentence."""

    pointer: str
    detail: str


class InvalidDocument(CallerError):
    """A workflow document that can't be registered; `problems` holds every reason at once."""

    def __init__(self, problems: tuple[ValidationIssue, ...]) -> None:
        super().__init__("; ".join(f"{p.pointer or '/'}: {p.detail}" for p in problems))
        self.problems = problems


class InvalidCursor(CallerError):
    """A listing cursor that is broken or was made for another listing."""


class LimitExceeded(CallerError):
    """A hard limit was met; `limit` is its stable name, e.g. `sqs.delay_seconds`."""

    def __init__(self, limit: str, detail: str) -> None:
        super().__init__(f"{limit}: {detail}")
        self.limit = limit
        self.detail = detail


class NotFound(CallerError):
    """No such thing, or it belongs to another tenant (which is never told apart)."""


class PayloadLost(NotFound):
    """What a record refers to is gone, or is not what was stored; asking again finds the same."""


class KeyReused(CallerError):
    """The idempotency key came before, with another body."""


class LaneDenied(CallerError):
    """A lane or priority better than the caller's token may use; `pointer` is to what asked for it."""

    def __init__(self, detail: str, *, pointer: str) -> None:
        super().__init__(detail)
        self.pointer = pointer


class WrongState(CallerError):
    """An operator's move that the run's state does not allow; `status` is that state."""

    def __init__(self, operation: str, status: str, *, cancelling: bool = False) -> None:
        state = "being cancelled" if cancelling else status
        super().__init__(f"the run is {state}: {operation} is not possible")
        self.operation = operation
        self.status = status


class SignalsFull(CallerError):
    """The run holds as many signals as it may that no wait has taken yet: so many by each name."""

    def __init__(self, status: str, held: Mapping[str, int]) -> None:
        most = sorted(held.items(), key=lambda item: (-item[1], item[0]))
        names = ", ".join(f"{count} {name!r}" for name, count in most[:10]) + (", …" if len(most) > 10 else "")
        count = sum(held.values())
        super().__init__(f"the run is {status} and holds {count} signals that no wait has taken, the limit: {names}")
        self.held = held


class QueueFull(CallerError):
    """The class has no free queue slot; `retry_after_seconds` is computed from `drain_per_second` (None: unknown)."""

    def __init__(
        self, class_name: str, *, limit: int, retry_after_seconds: int, drain_per_second: float | None = None
    ) -> None:
        super().__init__(f"the queue of class {class_name!r} holds {limit} run{'' if limit == 1 else 's'}, its bound")
        self.class_name = class_name
        self.limit = limit
        self.retry_after_seconds = retry_after_seconds
        self.drain_per_second = drain_per_second


class Conflict(FanfoldError):
    """A conditional write found another version; `current` is the record that stands (None: absent)."""

    def __init__(self, current: Any) -> None:
        super().__init__("the record is not the version this write replaces")
        self.current = current


class InfrastructureError(FanfoldError):
    """A service did not do its part; no run is to blame."""


class Throttled(InfrastructureError):
    """Definitely refused for load; nothing was done, ask again later."""


class Unavailable(InfrastructureError):
    """Definitely not done: the service could not be asked, or said no for a reason of its own."""


class Unanswered(InfrastructureError):
    """Asked and not answered: the call may have been carried out, or may still be."""


class Unreadable(InfrastructureError):
    """This code can't read it: damaged, or made by other code. Leave it alone, decide nothing; others go on.

    The sentence names what it is.
    """


class NewerSchema(Unreadable):
    """Written by a newer version of the code: hand it back, decide nothing (R12)."""


class IllegalTransition(FanfoldError):
    """A state change the table of legal moves does not know."""


class TaskError(FanfoldError):
    """Raised by a task to say more about its failure than an ordinary exception does."""


class Retry(TaskError):
    """Try this step again (within its `max_attempts`), after `after` seconds if given."""

    def __init__(self, message: str = "the task asked for a retry", *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Fail(TaskError):
    """This step can't succeed: do not try again, whatever its retry policy says."""
