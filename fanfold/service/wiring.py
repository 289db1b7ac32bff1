"""The composition of the ports: from AWS clients, or from a SQLite file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from fanfold.adapters.aws.calls import Call
from fanfold.adapters.aws.catalog import DynamoCatalog
from fanfold.adapters.aws.map_records import DynamoMapRecords
from fanfold.adapters.aws.run_store import DynamoRunStore
from fanfold.adapters.aws.s3 import S3Blobs
from fanfold.adapters.aws.seats import DynamoSeats
from fanfold.adapters.aws.secrets import DynamoSecrets
from fanfold.adapters.aws.slots import DynamoSlots
from fanfold.adapters.aws.sqs import SqsQueue
from fanfold.adapters.aws.stepfunctions import StepFunctionsFanOut
from fanfold.adapters.aws.sweeper_state import DynamoSweeperState
from fanfold.adapters.aws.tokens import DynamoTokens
from fanfold.engine.ports import (
    Blobs,
    Catalog,
    Clock,
    FanOut,
    Ids,
    MapRecords,
    QueueSlots,
    RunKey,
    RunStore,
    Seats,
    Secrets,
    SweeperState,
    Tokens,
    WorkQueue,
)
from fanfold.engine.record.messages import QueueName
from fanfold.service.aws_clients import Aws
from fanfold.service.clock import SystemClock, SystemIds
from fanfold.service.settings import Settings
from fanfold.service.workflow_cache import inline


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Every port, and what they were made from: all that the shell and the handlers need."""

    settings: Settings
    runs: RunStore
    queue: WorkQueue
    slots: QueueSlots
    blobs: Blobs
    catalog: Catalog
    tokens: Tokens
    sweeper_state: SweeperState
    secrets: Secrets
    seats: Seats
    map_records: MapRecords
    fan_out: FanOut
    clock: Clock
    ids: Ids
    clock_offset: Callable[[], float | None] = lambda: None
    """Seconds that AWS's clock is ahead of ours, as its last answer said; None before there was one."""
    cpu: Callable[[], float] | None = None
    """Seconds of processor time that this thread has had; None where nothing may depend on it."""
    aside: Callable[[Callable[[], Any]], Awaitable[Any]] = inline
    """Carries out what takes long in a thread, so that the event loop goes on."""
    until_written: Callable[[RunKey, float], Awaitable[None]] | None = None
    """Waits until this process writes a run's record, or for so many seconds; None where others write them."""


def queue_urls(settings: Settings) -> Mapping[QueueName, str]:
    """The URL of every configured queue."""
    return {
        QueueName(class_name=class_name, role=role): url
        for class_name, of_class in settings.classes.items()
        for role, url in of_class.queues.items()
    }


def services(settings: Settings, aws: Aws | None = None) -> Services:
    """The ports as `settings` say: in a SQLite file where they name one, else on AWS.

    No connection to AWS is opened before the first call.
    """
    if settings.database:
        from fanfold.service.file_wiring import file_services

        return file_services(settings)
    call = Aws(threads=settings.aws_threads) if aws is None else aws
    clock, ids = SystemClock(), SystemIds()
    return Services(
        settings=settings,
        **on_table(call, settings, clock, ids),
        queue=SqsQueue(call, queue_urls(settings), fair=settings.fair_queues),
        blobs=S3Blobs(call, settings.bucket),
        fan_out=StepFunctionsFanOut(
            call,
            {name: c.state_machine for name, c in settings.classes.items() if c.state_machine},
            {name: c.map_concurrency for name, c in settings.classes.items() if c.map_concurrency},
        ),
        clock=clock,
        ids=ids,
        cpu=time.thread_time,
        aside=asyncio.to_thread,
        clock_offset=lambda: call.clock_offset_seconds,
    )


class OnTable(TypedDict):
    """The ports that are kept in the table."""

    runs: RunStore
    slots: QueueSlots
    catalog: Catalog
    tokens: Tokens
    sweeper_state: SweeperState
    secrets: Secrets
    seats: Seats
    map_records: MapRecords


def on_table(call: Call, settings: Settings, clock: Clock, ids: Ids) -> OnTable:
    """The ports that are kept in the table, whatever `call` keeps the table in."""
    limits = {name: of_class.max_queue_depth for name, of_class in settings.classes.items()}
    return {
        "runs": DynamoRunStore(call, settings.table, settings.index_shards, settings.due_shards, sleep=clock.sleep),
        "slots": DynamoSlots(
            call,
            settings.table,
            limits,
            settings.slot_shards,
            clock=clock,
            ids=ids,
            hour_seconds=settings.slot_hour_seconds,
        ),
        "catalog": DynamoCatalog(call, settings.table),
        "tokens": DynamoTokens(call, settings.table),
        "sweeper_state": DynamoSweeperState(call, settings.table),
        "secrets": DynamoSecrets(call, settings.table),
        "seats": DynamoSeats(call, settings.table, settings.max_watchers),
        "map_records": DynamoMapRecords(call, settings.table),
    }
