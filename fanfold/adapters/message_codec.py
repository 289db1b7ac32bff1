"""Messages as they travel: one ASCII JSON object, `z` its schema number, `k` its kind (`run` or `wake`).

A wake may also be the detail of an EventBridge event about a map's execution, which has neither.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from fanfold.adapters.packing import from_ms, to_ms
from fanfold.adapters.payload_codec import (
    of_kind,
    origin_from_list,
    origin_to_list,
    value_from_list,
    value_to_list,
)
from fanfold.adapters.run_codec import slot_from_list, tags_from
from fanfold.engine.payload import Json
from fanfold.engine.record.messages import Envelope, Message, Wake
from fanfold.engine.record.run import SCHEMA
from fanfold.engine.tenant import checked_tenant

_RUN: Final = "run"
_WAKE: Final = "wake"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a body says: its message, or that it can't be read, or that newer code wrote it (R12)."""

    message: Message | None
    newer: bool = False


def fairness_group(tenant: str) -> str:
    """The group in which a tenant's messages are sent, so that one tenant's backlog holds up no other (fair queues).

    The tenant itself: every tenant's name is a `MessageGroupId` (SQS API: 128 characters, alphanumerics and
    punctuation). Raises ValueError for what is no tenant's name.
    """
    return checked_tenant(tenant)


def encode(message: Message) -> str:
    """The body of a message. ASCII: SQS refuses control characters and lone surrogates in the open."""
    match message:
        case Envelope():
            body = {
                "z": SCHEMA,
                "k": _RUN,
                "tenant": message.tenant,
                "run": message.run_id,
                "submission": message.submission,
                "workflow": message.workflow,
                "version": message.workflow_version,
                "class": message.class_name,
                "lane": message.lane,
                "input": value_to_list(message.input),
                "tags": dict(message.tags),
                "hash": message.request_hash,
                "accepted": to_ms(message.accepted_at),
                "deadline": to_ms(message.deadline),
                "queue_deadline": None if message.queue_deadline is None else to_ms(message.queue_deadline),
                "slot": None if message.slot is None else [message.slot.shard, message.slot.hour],
                "outages": message.outages,
            }
            if message.not_before is not None:
                body["from"] = to_ms(message.not_before)
            if message.origin is not None:
                body["origin"] = origin_to_list(message.origin)
            if message.again:
                body["again"] = True
        case Wake():
            body = {
                "z": SCHEMA,
                "k": _WAKE,
                "tenant": message.tenant,
                "run": message.run_id,
                "submission": message.submission,
                "class": message.class_name,
                "outages": message.outages,
            }
            if message.map_step is not None:
                body["map"] = message.map_step
    if message.raised:
        body["raised"] = True
    return json.dumps(body, separators=(",", ":"), allow_nan=False)


def decode(text: str) -> Opened:
    """What a body says; never raises, a body can be anything."""
    try:
        body = json.loads(text)
        if "executionArn" in body:
            return Opened(message=_broken_map(body))
        if body["z"] > SCHEMA:
            return Opened(message=None, newer=True)
        return Opened(message=_message(body))
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError):
        return Opened(message=None)


def _message(body: Json) -> Message | None:
    match body["k"]:
        case "run":
            slot, queue_deadline = body["slot"], body["queue_deadline"]
            return Envelope(
                tenant=checked_tenant(body["tenant"]),
                run_id=of_kind(body["run"], str),
                submission=of_kind(body["submission"], str),
                workflow=of_kind(body["workflow"], str),
                workflow_version=of_kind(body["version"], str),
                class_name=of_kind(body["class"], str),
                lane=of_kind(body["lane"], str),
                input=value_from_list(body["input"]),
                tags=tags_from(body["tags"]),
                request_hash=of_kind(body["hash"], str),
                accepted_at=from_ms(body["accepted"]),
                deadline=from_ms(body["deadline"]),
                queue_deadline=None if queue_deadline is None else from_ms(queue_deadline),
                not_before=from_ms(body["from"]) if "from" in body else None,
                slot=slot_from_list(slot),
                origin=None if "origin" not in body else origin_from_list(body["origin"]),
                outages=of_kind(body["outages"], int),
                again=body.get("again", False) is True,
                raised=body.get("raised", False) is True,
            )
        case "wake":
            return Wake(
                tenant=checked_tenant(body["tenant"]),
                run_id=of_kind(body["run"], str),
                submission=of_kind(body["submission"], str),
                class_name=of_kind(body["class"], str),
                map_step=of_kind(body["map"], str) if "map" in body else None,
                outages=of_kind(body["outages"], int),
                raised=body.get("raised", False) is True,
            )
        case _:
            return None


def _broken_map(detail: Json) -> Wake:
    """What EventBridge tells of an execution that failed, ran out of time or was aborted: its map has ended."""
    given = json.loads(detail["input"])
    return Wake(
        tenant=checked_tenant(given["tenant"]),
        run_id=of_kind(given["run"], str),
        submission=of_kind(given["submission"], str),
        class_name=of_kind(given["class"], str),
        map_step=of_kind(given["step"], str),
    )
