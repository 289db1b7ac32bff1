"""The seams between the engine's rules and the services: the smallest the callers need.

Each port has an AWS adapter and an in-memory one; one contract suite holds both to the promises
written here. Every method may raise an `InfrastructureError`; of those, only `Unanswered` leaves
open whether the call was carried out.
"""

from __future__ import annotations

from fanfold.engine.ports.clock import Clock, Ids, Moment
from fanfold.engine.ports.maps import Execution, FanOut, MapKey, MapRecords
from fanfold.engine.ports.queues import ClassLoad, NotSent, Outgoing, QueueDepth, QueueSlots, Reservation, WorkQueue
from fanfold.engine.ports.runs import (
    EPOCH,
    RUN_ID,
    Bucket,
    Condition,
    DueKey,
    FirstClaim,
    IfAbsent,
    IfVersion,
    IndexKey,
    RunKey,
    RunStore,
)
from fanfold.engine.ports.stores import Blobs, Catalog, Listed, Registered, Seat, Seats, Secrets, SweeperState
from fanfold.engine.ports.tokens import Token, Tokens

__all__ = [
    "EPOCH",
    "RUN_ID",
    "Blobs",
    "Bucket",
    "Catalog",
    "ClassLoad",
    "Clock",
    "Condition",
    "DueKey",
    "Execution",
    "FanOut",
    "FirstClaim",
    "Ids",
    "IfAbsent",
    "IfVersion",
    "IndexKey",
    "Listed",
    "MapKey",
    "MapRecords",
    "Moment",
    "NotSent",
    "Outgoing",
    "QueueDepth",
    "QueueSlots",
    "Registered",
    "Reservation",
    "RunKey",
    "RunStore",
    "Seat",
    "Seats",
    "Secrets",
    "SweeperState",
    "Token",
    "Tokens",
    "WorkQueue",
]
