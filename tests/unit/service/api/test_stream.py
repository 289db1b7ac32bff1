"""Watching a run by events and by long-poll: over reconnects, while it is being written, to every kind of end."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fanfold.engine.ports import IfAbsent, IfVersion
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.run import TERMINAL, Run, Status
from fanfold.service.api.sse import MAX_BYTES, wanted
from fanfold.service.settings import Settings
from tests.support.builders import a_run
from tests.support.clock import START, FakeClock
from tests.support.eventsource import EventSource, Message
from tests.support.http import Http, Reply, memory_services

ENDINGS = {
    Status.SUCCEEDED: EventType.RUN_SUCCEEDED,
    Status.FAILED: EventType.RUN_FAILED,
    Status.CANCELLED: EventType.RUN_CANCELLED,
}


def entries(count: int, *last: EventType) -> tuple[Entry, ...]:
    """A journal of emitted progress between acceptance and what it ends with."""
    types = [EventType.RUN_ACCEPTED, *[EventType.STEP_EMITTED] * (count - 1 - len(last)), *last]
    return tuple(
        Entry(seq=seq, at=START, type=type, step="only", attempt=1, data={"data": {"n": seq}})
        for seq, type in enumerate(types, 1)
    )


class Watch:
    """The API in memory with one run in it."""

    def __init__(self, run: Run, settings: Settings | None = None) -> None:
        self.http = Http(services=memory_services(settings))
        self.run = run

    @property
    def clock(self) -> FakeClock:
        clock = self.http.services.clock
        assert isinstance(clock, FakeClock)
        return clock

    async def begin(self) -> None:
        await self.http.services.runs.put(self.run, IfAbsent(), now=START)

    async def write(self, **changed: Any) -> None:
        """What a worker's commit does."""
        old, self.run = self.run, replace(self.run, version=self.run.version + 1, **changed)
        await self.http.services.runs.put(
            self.run, IfVersion(version=old.version, submission=old.submission), now=START
        )

    async def add(self, *types: EventType, status: Status = Status.RUNNING) -> None:
        """A commit of these events."""
        seq = self.run.last_seq
        more = tuple(Entry(seq=seq + n, at=START, type=type) for n, type in enumerate(types, 1))
        await self.write(journal=(*self.run.journal, *more), status=status)

    async def sse(self, query: str = "", *, last: str | None = None, **given: Any) -> Reply:
        headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": last})
        return await self.http("GET", f"/v1/runs/{self.run.id}/events{query}", headers=headers, **given)

    async def link(self) -> str:
        """The run's `links.stream`."""
        link: str = (await self.http("GET", f"/v1/runs/{self.run.id}")).json["links"]["stream"]
        return "/" + link


async def a_watch(settings: Settings | None = None, **given: Any) -> Watch:
    watch = Watch(a_run(**given), settings)
    await watch.begin()
    return watch


def messages(reply: Reply) -> Sequence[Message]:
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream"), reply.text
    return list(EventSource().read(reply.text))


# --- what goes over the wire ------------------------------------------------------------------


async def test_an_event_has_its_seq_as_id_its_type_and_itself_as_data() -> None:
    watch = await a_watch(status=Status.RUNNING, journal=entries(2))
    reply = await watch.sse()
    assert reply.text.startswith("retry: 250\n\n")
    first, second = messages(reply)
    assert (first.last_event_id, first.type, first.json["type"]) == ("1", "run.accepted", "run.accepted")
    assert (second.last_event_id, second.type) == ("2", "step.emitted")
    listed = (await watch.http("GET", f"/v1/runs/{watch.run.id}/events")).json["events"]
    assert [first.json, second.json] == listed
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_after_the_last_event_of_an_ended_run_comes_end_and_nothing_more(status: Status) -> None:
    watch = await a_watch(status=status, journal=entries(3, ENDINGS[status]))
    told = messages(await watch.sse())
    assert [message.type for message in told] == ["run.accepted", "step.emitted", f"run.{status}", "end"]
    assert told[-1].json == {"status": status, "last_seq": 3}
    # The end has no number of its own: who comes again goes on from the last event.
    assert told[-1].last_event_id == "3"


@pytest.mark.parametrize("status", sorted(TERMINAL))
@pytest.mark.parametrize("last", ["3", "99"])
async def test_who_comes_again_after_the_end_is_told_the_end_at_once(status: Status, last: str) -> None:
    watch = await a_watch(status=status, journal=entries(3, ENDINGS[status]))
    assert [message.type for message in messages(await watch.sse(last=last))] == ["end"]


async def test_a_client_that_never_closes_comes_again_seldom_after_the_end() -> None:
    watch = await a_watch(status=Status.SUCCEEDED, journal=entries(2, EventType.RUN_SUCCEEDED))
    source = EventSource()
    list(source.read((await watch.sse()).text))
    assert source.retry_ms == 60_000


async def test_who_watches_on_learns_of_a_redrive() -> None:
    watch = await a_watch(status=Status.FAILED, journal=entries(3, EventType.RUN_FAILED))
    source = EventSource()
    assert [message.type for message in source.read((await watch.sse()).text)][-1] == "end"
    await watch.add(EventType.RUN_REDRIVEN, EventType.RUN_CLAIMED)
    again = source.read((await watch.sse(last=source.last_event_id)).text)
    assert [message.type for message in again] == ["run.redriven", "run.claimed"]
    assert source.retry_ms == 250


async def test_last_event_id_counts_instead_of_after() -> None:
    watch = await a_watch(status=Status.RUNNING, journal=entries(5))
    assert [m.last_event_id for m in messages(await watch.sse("?after=3"))] == ["4", "5"]
    assert [m.last_event_id for m in messages(await watch.sse("?after=1", last="4"))] == ["5"]
    assert [m.last_event_id for m in messages(await watch.sse("?after=3", last=""))] == ["4", "5"]


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "³", "9" * 19])
async def test_a_last_event_id_that_is_none_of_ours_is_422(last: str) -> None:
    reply = await (await a_watch()).sse(last=last)
    assert (reply.status, reply.json["parameter"]) == (422, "Last-Event-ID")


async def test_without_the_media_type_the_same_address_answers_json() -> None:
    watch = await a_watch(status=Status.RUNNING, journal=entries(2))
    for accept in ("application/json", "*/*", ""):
        reply = await watch.http("GET", f"/v1/runs/{watch.run.id}/events", headers={"Accept": accept})
        assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [("text/event-stream", True), ("Text/Event-Stream;q=0.9, */*", True), ("application/json", False), ("", False)],
)
def test_an_accept_header_is_read_by_its_media_types(accept: str, expected: bool) -> None:
    assert wanted(accept) is expected


async def test_events_too_big_for_one_answer_come_in_the_next() -> None:
    big = [
        Entry(seq=seq, at=START, type=EventType.STEP_EMITTED, step="only", data={"data": "x" * 700_000})
        for seq in (2, 3)
    ]
    watch = await a_watch(status=Status.RUNNING, journal=(*entries(1), *big))
    first = await watch.sse()
    assert [m.last_event_id for m in messages(first)] == ["1", "2"]
    assert len(first.text) < MAX_BYTES
    assert [m.last_event_id for m in messages(await watch.sse(last="2"))] == ["3"]
    huge = Entry(seq=4, at=START, type=EventType.RUN_SUCCEEDED, data={"data": "x" * 1_200_000})
    await watch.write(journal=(*watch.run.journal, huge), status=Status.SUCCEEDED)
    assert [m.type for m in messages(await watch.sse(last="2"))] == ["step.emitted"]
    assert [m.type for m in messages(await watch.sse(last="3"))] == ["run.succeeded", "end"]


# --- waiting ----------------------------------------------------------------------------------


async def test_a_stream_answers_as_soon_as_there_is_one_event() -> None:
    watch = await a_watch(status=Status.RUNNING, journal=entries(1))
    waiting = asyncio.create_task(watch.sse(last="1"))
    await watch.clock.advance(5)
    assert not waiting.done()
    await watch.add(EventType.RUN_CLAIMED)
    await watch.clock.advance(1)
    assert [message.type for message in messages(waiting.result())] == ["run.claimed"]


async def test_a_stream_without_news_ends_within_25_seconds_and_moves_nobody() -> None:
    watch = await a_watch(status=Status.RUNNING, journal=entries(1))
    waiting = asyncio.create_task(watch.sse(last="1"))
    await watch.clock.advance(23)
    assert not waiting.done()
    await watch.clock.advance(1.9)
    source = EventSource(last_event_id="1")
    assert list(source.read(waiting.result().text)) == []
    assert (source.last_event_id, source.retry_ms) == ("1", 250)


async def watch_stream(watch: Watch, *, link: bool) -> list[Message]:
    """What an EventSource is told until the end."""
    source, told = EventSource(), []
    path = await watch.link() if link else f"/v1/runs/{watch.run.id}/events"

    async def connect(headers: dict[str, str]) -> str:
        if source.connections > 1:
            await watch.clock.sleep(source.retry_ms / 1000)
        reply = await watch.http("GET", path, headers=headers, verdict=None if link else "ok")
        assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream")
        return reply.text

    async for message in source.listen(connect):
        told.append(message)
        if message.type == "end":
            break
    return told


async def watch_by_polls(watch: Watch, *, limit: int) -> list[dict[str, Any]]:
    """What a client of the long-poll is told until the end."""
    told: list[dict[str, Any]] = []
    after = 0
    while True:
        page = await watch.http("GET", f"/v1/runs/{watch.run.id}/events?after={after}&limit={limit}&wait=5")
        told += page.json["events"]
        after = page.json["last_seq"]
        if page.json["end"]:
            return told


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_whoever_watches_sees_every_event_once_in_order_while_it_is_being_written(status: Status) -> None:
    watch = await a_watch(status=Status.RUNNING, journal=entries(1))

    async def work() -> None:
        for number in range(60):
            await watch.clock.sleep((number * 7 % 11) / 10)
            await watch.add(*[EventType.STEP_EMITTED] * (number % 4 + 1))
        await watch.add(EventType.STEP_CANCELLED, ENDINGS[status], status=status)

    tasks = [
        asyncio.create_task(work()),
        *(asyncio.create_task(watch_stream(watch, link=link)) for link in (False, True)),
        *(asyncio.create_task(watch_by_polls(watch, limit=limit)) for limit in (1, 3, 100)),
    ]
    for _ in range(400):
        if all(task.done() for task in tasks):
            break
        await watch.clock.advance(0.5)
    _, *streams = [await task for task in tasks[:3]]
    polls: list[list[dict[str, Any]]] = [await task for task in tasks[3:]]
    everything = list(range(1, watch.run.last_seq + 1))
    for stream in streams:
        assert [message.json["seq"] for message in stream[:-1]] == everything
        assert (stream[-1].type, stream[-2].type) == ("end", f"run.{status}")
    for poll in polls:
        assert [event["seq"] for event in poll] == everything


async def test_a_process_with_no_seat_left_answers_a_stream_at_once_and_asks_to_come_back() -> None:
    watch = await a_watch(Settings(max_waiters=0), status=Status.RUNNING, journal=entries(1))
    source = EventSource()
    assert list(source.read((await watch.sse(last="1")).text)) == []
    assert source.retry_ms == 2_000
    list(source.read((await watch.sse()).text))
    assert source.retry_ms == 250


# --- tickets ----------------------------------------------------------------------------------


async def test_a_ticket_shows_the_same_stream_without_a_token_to_any_page() -> None:
    watch = await a_watch(status=Status.SUCCEEDED, journal=entries(3, EventType.RUN_SUCCEEDED))
    reply = await watch.http("GET", await watch.link(), verdict=None)
    assert messages(reply) == messages(await watch.sse())
    assert reply.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-origin" not in (await watch.sse()).headers


async def test_every_answer_about_a_run_carries_a_ticket() -> None:
    watch = await a_watch(status=Status.SUCCEEDED, journal=entries(3, EventType.RUN_SUCCEEDED))
    listed = (await watch.http("GET", "/v1/runs")).json["runs"][0]["links"]["stream"]
    assert messages(await watch.http("GET", "/" + listed, verdict=None))


async def test_a_ticket_is_good_for_an_hour() -> None:
    watch = await a_watch(status=Status.SUCCEEDED, journal=entries(3, EventType.RUN_SUCCEEDED))
    link = await watch.link()
    watch.clock.set_now(START + timedelta(minutes=59, seconds=59))
    assert (await watch.http("GET", link, verdict=None)).status == 200
    watch.clock.set_now(START + timedelta(hours=1))
    reply = await watch.http("GET", link, verdict=None)
    assert (reply.status, reply.json["type"]) == (401, "unauthorized")
    assert (await watch.http("GET", await watch.link(), verdict=None)).status == 200


async def test_a_ticket_that_was_changed_anywhere_is_refused() -> None:
    watch = await a_watch()
    ticket = (await watch.link()).rsplit("/", 1)[1]
    data = bytearray(base64.urlsafe_b64decode(ticket + "=" * (-len(ticket) % 4)))
    for position in range(len(data)):
        forged = bytearray(data)
        forged[position] ^= 1
        text = base64.urlsafe_b64encode(bytes(forged)).decode().rstrip("=")
        assert (await watch.http("GET", f"/v1/stream/{text}", verdict=None)).status == 401


@pytest.mark.parametrize("ticket", ["x", "ticket", "ä", "a" * 200, "....", "%00", base64.b64encode(b"[1]").decode()])
async def test_what_is_no_ticket_is_401(ticket: str) -> None:
    reply = await (await a_watch()).http("GET", f"/v1/stream/{ticket}", verdict=None)
    assert (reply.status, reply.json["type"]) == (401, "unauthorized")


async def test_a_ticket_holds_for_its_run_alone_and_names_its_tenant() -> None:
    watch = await a_watch()
    ticket = (await watch.link()).rsplit("/", 1)[1]
    data = base64.urlsafe_b64decode(ticket + "=" * (-len(ticket) % 4))
    expiry, tenant, run_id = json.loads(data[16:])
    assert (tenant, run_id) == ("acme", watch.run.id)
    assert expiry == int((START + timedelta(hours=1)).timestamp())


async def test_tickets_of_one_process_are_good_at_another_and_none_of_another_deployment() -> None:
    watch = await a_watch(status=Status.SUCCEEDED, journal=entries(3, EventType.RUN_SUCCEEDED))
    link = await watch.link()
    sibling = Http(services=watch.http.services)
    assert (await sibling("GET", link, verdict=None)).status == 200
    stranger = Http(services=replace(watch.http.services, secrets=memory_services().secrets))
    await stranger.services.secrets.shared("stream", drawn="another")
    assert (await stranger("GET", link, verdict=None)).status == 401


async def test_the_key_is_read_once_per_process() -> None:
    watch = await a_watch()
    asked = []
    secrets = watch.http.services.secrets

    class Counted:
        async def shared(self, name: str, *, drawn: str) -> str:
            asked.append(name)
            await asyncio.sleep(0)
            return await secrets.shared(name, drawn=drawn)

    http = Http(services=replace(watch.http.services, secrets=Counted()))
    await asyncio.gather(*(http("GET", f"/v1/runs/{watch.run.id}") for _ in range(5)))
    await http("GET", "/v1/runs")
    assert asked == ["stream"]


# --- the parser itself ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("data: YHOO\ndata: +2\ndata: 10\n\n", [("message", "YHOO\n+2\n10", "")]),
        (": comment\n\ndata: first\nid: 1\n\ndata:second\nid\n\ndata:  third\n\n",
         [("message", "first", "1"), ("message", "second", ""), ("message", " third", "")]),
        ("data\n\ndata\ndata\n\ndata:", [("message", "", ""), ("message", "\n", "")]),
        ("data:test\r\rdata: test\r\n\r\n", [("message", "test", ""), ("message", "test", "")]),
        ("\ufeffevent: a\ndata: 1\n\nevent: b\n\ndata: 2\n\n", [("a", "1", ""), ("message", "2", "")]),
        ("id: 7\n\ndata: x\n", []),
    ],
)  # fmt: skip
def test_the_parser_reads_the_standards_own_examples(body: str, expected: list[tuple[str, str, str]]) -> None:
    told = [(message.type, message.data, message.last_event_id) for message in EventSource().read(body)]
    assert told == expected
