"""Messages as they travel: one ASCII JSON object, `z` its schema number, `k` its kind (`run` or `wake`).

A wake may also be the detail of an EventBridge event about a map's execution, which has neither.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from fanfold.adapters.payload_codec import value_from_list, value_to_list
from fanfold.adapters.run_codec import from_ms, origin_from_list, origin_to_list, to_ms
from fanfold.engine.payload import Json
from fanfold.engine.record.messages import Envelope, Message, Wake
from fanfold.engine.record.run import SCHEMA, Slot
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
                run_id=body["run"],
                submission=body["submission"],
                workflow=body["workflow"],
                workflow_version=body["version"],
                class_name=body["class"],
                lane=body["lane"],
                input=value_from_list(body["input"]),
                tags=body["tags"],
                request_hash=body["hash"],
                accepted_at=from_ms(body["accepted"]),
                deadline=from_ms(body["deadline"]),
                queue_deadline=None if queue_deadline is None else from_ms(queue_deadline),
                not_before=from_ms(body["from"]) if "from" in body else None,
                slot=None if slot is None else Slot(shard=slot[0], hour=slot[1]),
                origin=None if "origin" not in body else origin_from_list(body["origin"]),
                outages=body["outages"],
                again=body.get("again", False),
            )
        case "wake":
            return Wake(
                tenant=checked_tenant(body["tenant"]),
                run_id=body["run"],
                submission=body["submission"],
                class_name=body["class"],
                map_step=body.get("map"),
                outages=body["outages"],
            )
        case _:
            return None


def _broken_map(detail: Json) -> Wake:
    """What EventBridge tells of an execution that failed, ran out of time or was aborted: its map has ended."""
    given = json.loads(detail["input"])
    return Wake(
        tenant=checked_tenant(given["tenant"]),
        run_id=given["run"],
        submission=given["submission"],
        class_name=given["class"],
        map_step=given["step"],
    )
