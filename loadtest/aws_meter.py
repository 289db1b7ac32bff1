"""Counts calls to AWS by operation, and the units they are billed by, from what the services answer."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from fanfold.adapters.aws.calls import Client
from fanfold.service.aws_clients import Aws

REQUEST_BYTES = 65_536
"""A request to SQS is billed for each 64 KB of its payload."""

WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem"})
_METERED = "fanfold-metered"


@dataclass(slots=True, kw_only=True)
class Meter:
    """Calls by operation; units of the table and of its indexes by operation; SQS's requests in 64 KB, messages sent.

    Clients call from many threads.
    """

    calls: Counter[str] = field(default_factory=Counter)
    write_units: Counter[str] = field(default_factory=Counter)
    index_units: Counter[str] = field(default_factory=Counter)
    read_units: Counter[str] = field(default_factory=Counter)
    queue_requests: int = 0
    sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def taken(self) -> Meter:
        """All that was counted; it begins anew."""
        with self._lock:
            told = Meter(
                calls=self.calls,
                write_units=self.write_units,
                index_units=self.index_units,
                read_units=self.read_units,
                queue_requests=self.queue_requests,
                sent=self.sent,
            )
            self.calls, self.write_units, self.index_units, self.read_units = Counter(), Counter(), Counter(), Counter()
            self.queue_requests = self.sent = 0
        return told

    def call(self, operation: str) -> None:
        """One call."""
        with self._lock:
            self.calls[operation] += 1

    def wrote(self, operation: str, *, table: float, index: float = 0) -> None:
        """Write units that a call took. Raises ValueError for a part of one."""
        with self._lock:
            self.write_units[operation] += _whole(table)
            if index:
                self.index_units[operation] += _whole(index)

    def read(self, operation: str, units: float) -> None:
        """Read units that a call took."""
        with self._lock:
            self.read_units[operation] += units  # type: ignore[assignment]  # half a unit is a unit, too

    def queued(self, payload_bytes: int, *, sent: int = 0) -> None:
        """A request to SQS with a payload of so many bytes, and so many messages sent by it."""
        with self._lock:
            self.queue_requests += max(1, math.ceil(payload_bytes / REQUEST_BYTES))
            self.sent += sent

    def attach(self, aws: Aws) -> None:
        """Count what these clients do from now on, by what the services answer of it.

        Asks for the units of each index by a hook of botocore's, for as long as this process measures.
        """
        for each in Client:
            events = aws.client(each).meta.events
            events.register_first("before-parameter-build.dynamodb", _ask, unique_id=_METERED)
            events.register("before-parameter-build.sqs", _weigh, unique_id=f"{_METERED}-weight")
            events.register("before-call", self._called, unique_id=f"{_METERED}-call")
            events.register("after-call", self._answered, unique_id=f"{_METERED}-answer")

    def _called(self, model: Any, **_: Any) -> None:
        self.call(model.name)

    def _answered(self, model: Any, parsed: Mapping[str, Any], context: Mapping[str, Any], **_: Any) -> None:
        match model.service_model.service_name:
            case "dynamodb":
                told = parsed.get("ConsumedCapacity") or []
                for each in told if isinstance(told, list) else [told]:
                    self._consumed(model.name, each)
            case "sqs":
                payload, sent = context.get(_METERED, (0, 0))
                received = sum(len(message["Body"]) for message in parsed.get("Messages", ()))
                self.queued(payload + received, sent=sent)

    def _consumed(self, operation: str, told: Mapping[str, Any]) -> None:
        if operation not in WRITES:
            return self.read(operation, told["CapacityUnits"])
        index = sum(part["CapacityUnits"] for part in (told.get("GlobalSecondaryIndexes") or {}).values())
        return self.wrote(operation, table=told["CapacityUnits"] - index, index=index)


class CountedPort:
    """A port of which some methods are a call each; one of the table is a write of one unit."""

    def __init__(self, port: Any, meter: Meter, operations: Mapping[str, str] = MappingProxyType({})) -> None:
        self._port = port
        self._meter = meter
        self._operations = operations

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        operation = self._operations.get(name)
        if operation is None:
            return method

        async def counted(*given: Any, **named: Any) -> Any:
            self._meter.call(operation)
            if operation == "UpdateItem":
                self._meter.wrote(operation, table=1)
            return await method(*given, **named)

        return counted


def _ask(params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
    if "ReturnConsumedCapacity" in model.input_shape.members:
        params["ReturnConsumedCapacity"] = "INDEXES"


def _weigh(params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
    entries = params.get("Entries", [params])
    bodies = [entry["MessageBody"] for entry in entries if "MessageBody" in entry]
    context[_METERED] = sum(map(len, bodies)), len(bodies)


def _whole(units: float) -> int:
    """Write units are whole: a fraction would be a mistake of whoever counted. Raises ValueError for one."""
    if units != int(units):
        raise ValueError(f"{units} write units")
    return int(units)
