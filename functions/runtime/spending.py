"""What calls to AWS cost: counted where they are made, from the answers they get anyway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from functions.adapters.aws import Client
from functions.runtime.metrics import Metric
from functions.runtime.tally import count

_TABLE: Final = frozenset({Client.DYNAMODB, Client.DYNAMODB_ONCE})
_QUEUES: Final = frozenset({Client.SQS, Client.SQS_ONCE, Client.SQS_RECEIVE})
_OBJECTS: Final = {"get_object": Metric.BUCKET_READS, "put_object": Metric.BUCKET_WRITES}
_WRITES: Final = frozenset({"put_item", "update_item", "delete_item"})


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


def asking(client: Client, operation: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Counts the call that is about to be made; returns the parameters that make its answer say what it cost."""
    if client in _TABLE:
        count(Metric.TABLE_CALLS)
        return {**parameters, "ReturnConsumedCapacity": "TOTAL"}
    if client in _QUEUES:
        count(Metric.QUEUE_CALLS)
    elif operation in _OBJECTS:
        count(_OBJECTS[operation])
    return parameters


def answered(client: Client, operation: str, response: Any) -> None:
    """Counts the capacity units of the table and its indexes that an answer tells of."""
    if client not in _TABLE:
        return
    told = response.get("ConsumedCapacity") or []
    units = sum(each.get("CapacityUnits", 0.0) for each in (told if isinstance(told, list) else [told]))
    if units:
        count(Metric.TABLE_WRITE_UNITS if operation in _WRITES else Metric.TABLE_READ_UNITS, units)
