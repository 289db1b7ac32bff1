"""What calls to AWS cost: counted where they are made, from the answers they get anyway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fanfold.adapters.aws.calls import Client
from fanfold.service.telemetry.metric_buffer import counter
from fanfold.service.telemetry.metrics import Metric

_TABLE: Final = frozenset({Client.DYNAMODB, Client.DYNAMODB_ONCE})
_QUEUES: Final = frozenset({Client.SQS, Client.SQS_ONCE, Client.SQS_RECEIVE})
_WRITES: Final = frozenset({"put_item", "update_item", "delete_item"})

# Made once: these count at each call there is.
_table_call = counter(Metric.TABLE_CALLS)
_read_units = counter(Metric.TABLE_READ_UNITS)
_write_units = counter(Metric.TABLE_WRITE_UNITS)
_queue_call = counter(Metric.QUEUE_CALLS)
_objects: Final = {"get_object": counter(Metric.BUCKET_READS), "put_object": counter(Metric.BUCKET_WRITES)}

COSTS: Final = frozenset(
    {
        Metric.TABLE_CALLS,
        Metric.TABLE_READ_UNITS,
        Metric.TABLE_WRITE_UNITS,
        Metric.QUEUE_CALLS,
        Metric.BUCKET_READS,
        Metric.BUCKET_WRITES,
    }
)
"""All that is counted here: what is missing of it makes a sum a little lower, and hides nothing."""


def spend(client: Client, operation: str, method: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """Calls the client's method, counting the call and what its answer says it cost; returns the answer.

    A call of the table is asked to say it: that is added to the parameters.
    """
    if client in _TABLE:
        _table_call(1)
        parameters["ReturnConsumedCapacity"] = "TOTAL"
        answer = method(**parameters)
        told = answer.get("ConsumedCapacity") or {}
        if isinstance(told, list):  # of an operation on several tables
            units = sum(each.get("CapacityUnits", 0.0) for each in told)
        else:
            units = told.get("CapacityUnits", 0.0)
        if units:  # of the table and its indexes
            (_write_units if operation in _WRITES else _read_units)(units)
        return answer
    if client in _QUEUES:
        _queue_call(1)
    elif operation in _objects:
        _objects[operation](1)
    return method(**parameters)
