"""The fan-out Lambda: works on one batch of a map's items, for a state machine in Step Functions."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from functions.runtime.mapbatch import BatchInvocations


@cache
def _invocations() -> BatchInvocations:
    return BatchInvocations.from_env(os.environ)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Works on the batch. An item's failure is recorded and never raises out of here."""
    end = _invocations().work(event, seconds_left=context.get_remaining_time_in_millis() / 1000)
    return {"batch": event["batch"], "end": end}
