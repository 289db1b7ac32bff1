"""Events: a run's journal as JSON pages or server-sent events, with a token or a ticket."""

from __future__ import annotations

from dataclasses import dataclass

from fanfold.engine.record.run import Run
from fanfold.service.api import sse, views
from fanfold.service.api.access import Caller
from fanfold.service.api.handlers.context import Context
from fanfold.service.api.problems import invalid_parameter
from fanfold.service.api.request_models import EventsQuery
from fanfold.service.api.requests import Request, query_as
from fanfold.service.api.response_models import EventList, StreamEnd
from fanfold.service.api.responses import Answer
from fanfold.service.api.run_reader import page

STREAM_SECONDS = 24.0
"""Seconds that a stream waits for its first event: an answer ends within 25 s."""
STREAM_LIMIT = 1000
LAST_EVENT_ID = "last-event-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A run's events after a `seq`, and the run as it was then."""

    run: Run
    content: EventList


async def listing(context: Context, caller: Caller, request: Request, *, id: str) -> Answer:
    """A run's events after `after`; with `wait`, as soon as there is one.

    `Accept: text/event-stream` makes it server-sent events, which wait by themselves, go on from
    `Last-Event-ID`, and close with `event: end` when the run has ended.
    """
    if sse.wanted(request.headers.get("accept", "")):
        return await _stream(context, caller.tenant, id, request)
    query = query_as(EventsQuery, request)
    part = await _read(context, caller.tenant, id, after=query.after, limit=query.limit, wait_seconds=query.wait)
    return Answer(content=part.content, spill_prefix=f"{part.run.tenant}/{part.run.id}/{part.run.submission}")


async def stream(context: Context, request: Request, *, ticket: str) -> Answer:
    """The run a ticket (`links.stream`) is for, as server-sent events. Needs no token: for a browser's EventSource."""
    key = (await context.tickets.open()).open(ticket)
    answer = await _stream(context, key.tenant, key.run_id, request)
    # The ticket alone is the permission, so pages of any origin may read this.
    return Answer(
        content=answer.content,
        media_type=answer.media_type,
        headers={**answer.headers, "Access-Control-Allow-Origin": "*"},
    )


async def _stream(context: Context, tenant: str, run_id: str, request: Request) -> Answer:
    query = query_as(EventsQuery, request)
    clock = context.services.clock
    asked = clock.monotonic()
    part = await _read(
        context,
        tenant,
        run_id,
        after=_last_seen(request, query.after),
        limit=query.limit if "limit" in request.query else STREAM_LIMIT,
        wait_seconds=min(STREAM_SECONDS, query.wait if "wait" in request.query else STREAM_SECONDS),
    )
    end = StreamEnd(status=part.run.status, last_seq=part.content.last_seq) if part.content.end else None
    return Answer(
        content=sse.stream(part.content.events, end=end, held=clock.monotonic() - asked >= 1),
        media_type=sse.MEDIA_TYPE,
        headers={"Cache-Control": "no-store"},
    )


async def _read(context: Context, tenant: str, run_id: str, *, after: int, limit: int, wait_seconds: float) -> _Part:
    run = await context.run_once(
        tenant, run_id, until=lambda run: run.terminal or run.last_seq > after, wait_seconds=wait_seconds
    )
    run, chosen = await page(context.services, run, after=after, limit=limit)
    last_seq = chosen[-1].seq if chosen else min(after, run.last_seq)
    return _Part(
        run=run,
        content=EventList(
            events=[views.event(entry) for entry in chosen],
            last_seq=last_seq,
            end=run.terminal and last_seq >= run.last_seq,
        ),
    )


def _last_seen(request: Request, after: int) -> int:
    """The `seq` after which to continue. A client that reconnects sends it in `Last-Event-ID`."""
    text = request.headers.get(LAST_EVENT_ID, "")
    if not text:
        return after
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise invalid_parameter("Last-Event-ID", "must be the `id` of an event of this stream")
    return int(text)
