"""The worker Lambda: a batch of messages in, the ids of those to deliver again out."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from fanfold.service.worker.invocation import Invocations


@cache
def _invocations() -> Invocations:
    return Invocations.from_env(os.environ)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Works on the batch. A run's failure never raises out of here."""
    again = _invocations().work(event, seconds_left=context.get_remaining_time_in_millis() / 1000)
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in again]}
