"""The seams between the engine's rules and the services: the smallest the callers need.

Each port has an AWS adapter and an in-memory one; one contract suite holds both to the promises
written here. Every method may raise an `InfrastructureError`; of those, only `Unanswered` leaves
open whether the call was carried out.
"""

from __future__ import annotations

from functions.engine.ports.clock import Clock, Ids, Moment
from functions.engine.ports.maps import Execution, FanOut, MapKey, MapRecords
from functions.engine.ports.queues import ClassLoad, NotSent, Outgoing, Places, QueueDepth, Reservation, WorkQueue
from functions.engine.ports.runs import (
    EPOCH,
    RUN_ID,
    Absent,
    Bucket,
    Condition,
    DueKey,
    FirstClaim,
    IndexKey,
    Replaces,
    RunKey,
    RunStore,
)
from functions.engine.ports.stores import Blobs, Catalog, Listed, Marks, Registered, Seat, Seats, Secrets
from functions.engine.ports.tokens import Token, Tokens

__all__ = [
    "EPOCH",
    "RUN_ID",
    "Absent",
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
    "IndexKey",
    "Listed",
    "MapKey",
    "MapRecords",
    "Marks",
    "Moment",
    "NotSent",
    "Outgoing",
    "Places",
    "QueueDepth",
    "Registered",
    "Replaces",
    "Reservation",
    "RunKey",
    "RunStore",
    "Seat",
    "Seats",
    "Secrets",
    "Token",
    "Tokens",
    "WorkQueue",
]
