"""Counts refused valid submits by reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from fanfold.engine.errors import InfrastructureError, QueueFull
from fanfold.service.api.problems import Refused
from fanfold.service.telemetry.reporting import Metric, Refusal, count


@contextmanager
def refusals() -> Iterator[None]:
    """Count an error that refuses a valid submit, and raise it again."""
    try:
        yield
    except Exception as error:
        count_refusal(error)
        raise


def count_refusal(error: Exception) -> None:
    """Count an error if it refuses a valid submit."""
    match error:
        case QueueFull():
            reason = Refusal.QUEUE_FULL
        case Refused() if error.problem.status == HTTPStatus.TOO_MANY_REQUESTS:
            reason = Refusal.RATE_LIMITED
        case InfrastructureError():
            reason = Refusal.UNAVAILABLE
        case _:
            return
    count(Metric.RUNS_REFUSED)
    count(Metric.REFUSALS, of=(reason,))
