"""The fan-out Lambda: works on one batch of a map's items, for a state machine in Step Functions."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from fanfold.service.worker.map_batches import BatchInvocations


@cache
def _invocations() -> BatchInvocations:
    return BatchInvocations.from_env(os.environ)


def handler(event: dict[str, Any], context: Any) -> str:
    """Works on the batch; answers in a word. An item's failure is recorded and never raises out of here."""
    return _invocations().work(event, seconds_left=context.get_remaining_time_in_millis() / 1000)
