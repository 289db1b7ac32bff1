"""Submits that were refused although nothing was wrong with them, counted by reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from fanfold.engine.errors import InfrastructureError, QueueFull
from fanfold.service.api.problems import Refused
from fanfold.service.telemetry.reporting import Metric, Refusal, count


@contextmanager
def refusals() -> Iterator[None]:
    """Counts what is raised within, if it refuses a submit that may well be sent again; lets it fly on."""
    try:
        yield
    except Exception as error:
        count_refusal(error)
        raise


def count_refusal(error: Exception) -> None:
    """Counts an error if it refuses a submit that may well be sent again."""
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
