"""Submit, wherever it breaks off: what is left behind, and what the client is told."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fanfold.engine.errors import (
    InfrastructureError,
    KeyReused,
    LimitExceeded,
    NotFound,
    Throttled,
    Unanswered,
    Unavailable,
)
from fanfold.engine.language.workflow import version_of
from fanfold.engine.ports import FirstClaim, Registered, RunKey
from fanfold.engine.record.messages import Envelope, first_version
from fanfold.engine.record.run import Run, Status
from fanfold.service.api.handlers.context import Context, context_of
from fanfold.service.api.submit import Submission, Submitted
from fanfold.service.wiring import Services
from fanfold.service.workflow_cache import WorkflowCache
from tests.support.builders import LANE
from tests.support.clock import START, FakeClock
from tests.support.http import TINY, memory_services

PORTS = ("runs", "queue", "slots", "blobs", "catalog")


class Watched:
    """A port that counts its calls, and lets a test break in before or after any of them."""

    def __init__(self, port: Any, name: str, calls: list[str]) -> None:
        self._port, self._name, self._calls = port, name, calls
        self.before: dict[str, list[Any]] = {}
        self.after: dict[str, list[Any]] = {}

    def __getattr__(self, method: str) -> Callable[..., Any]:
        real = getattr(self._port, method)

        async def call(*args: Any, **given: Any) -> Any:
            self._calls.append(f"{self._name}.{method}")
            await self._break_in(self.before, method)
            result = await real(*args, **given)
            await self._break_in(self.after, method)
            return result

        return call

    async def _break_in(self, where: dict[str, list[Any]], method: str) -> None:
        if not where.get(method):
            return
        act = where[method].pop(0)
        if isinstance(act, Exception):
            raise act
        if act is not None:
            await act()


class Bench:
    """A submitter on watched ports in memory, with `tiny` registered."""

    def __init__(self, services: Services) -> None:
        self.calls: list[str] = []
        self.memory = services
        self.ports: dict[str, Any] = {name: Watched(getattr(services, name), name, self.calls) for name in PORTS}
        self.desk: Context = context_of(replace(services, **self.ports))

    async def submit(self, **given: Any) -> Submitted:
        body = given.pop("body", "body")
        values: dict[str, Any] = {"tenant": "acme", "workflow": "tiny", "request_hash": digest(body), **given}
        task = asyncio.create_task(self.desk.submitter.submit(Submission(**values)))
        clock = self.memory.clock
        assert isinstance(clock, FakeClock)
        for _ in range(200):
            if task.done():
                break
            await clock.advance(0.25)
        return await task

    async def slots_taken(self) -> int:
        return (await self.memory.slots.load("model")).depth

    async def envelopes(self) -> list[Envelope]:
        received = await self.memory.queue.receive(LANE, limit=10, wait_seconds=0, visibility_seconds=0)
        return [item.message for item in received if isinstance(item.message, Envelope)]

    def rows(self) -> list[Run]:
        return list(self.memory.runs.rows.values())  # type: ignore[attr-defined]  # in memory

    async def claim(self) -> None:
        """What a worker does with the envelope: version 2 of its run, and the place returned."""
        (envelope,) = await self.envelopes()
        run = replace(first_version(envelope), status=Status.RUNNING, version=2, epoch=1)
        await self.memory.runs.put(run, FirstClaim(submission=run.submission), now=START)


def digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


@pytest.fixture
async def bench() -> Bench:
    services = memory_services()
    registered = Registered(name="tiny", version=version_of(TINY), document=TINY, created_at=START)
    await services.catalog.register("acme", registered)
    return Bench(services)


async def test_a_submit_costs_one_read_one_reservation_one_send_and_one_put(bench: Bench) -> None:
    await bench.submit()
    assert bench.calls == ["catalog.current", "slots.reserve", "queue.send", "runs.put"]


async def test_a_named_version_is_read_once_per_process(bench: Bench) -> None:
    for _ in range(3):
        await bench.submit(workflow_version=version_of(TINY))
    assert bench.calls.count("catalog.version") == 1
    assert "catalog.current" not in bench.calls


async def test_a_repeated_key_costs_one_read_and_no_slot(bench: Bench) -> None:
    await bench.submit(key="k")
    bench.calls.clear()
    assert (await bench.submit(key="k")).replayed
    assert bench.calls == ["runs.get"]


async def test_the_row_is_version_1_of_its_envelope(bench: Bench) -> None:
    done = await bench.submit(input={"n": 1}, tags={"a": "b"})
    (envelope,) = await bench.envelopes()
    assert bench.rows() == [first_version(envelope)] == [done.run]


@pytest.mark.parametrize("error", [Throttled("no"), Unanswered("?")])
async def test_a_reservation_that_fails_leaves_nothing_accepted(bench: Bench, error: InfrastructureError) -> None:
    bench.ports["slots"].before["reserve"] = [error]
    with pytest.raises(type(error)):
        await bench.submit()
    assert (await bench.envelopes(), bench.rows()) == ([], [])


@pytest.mark.parametrize("error", [Throttled("no"), Unavailable("no"), LimitExceeded("sqs.message_bytes", "no")])
async def test_a_send_refused_for_sure_returns_the_slot(bench: Bench, error: Exception) -> None:
    bench.ports["queue"].before["send"] = [error]
    with pytest.raises(type(error)):
        await bench.submit()
    assert (await bench.slots_taken(), bench.rows()) == (0, [])


async def test_a_send_without_an_answer_keeps_the_slot_for_it_may_be_out(bench: Bench) -> None:
    bench.ports["queue"].after["send"] = [Unanswered("?")]
    with pytest.raises(Unanswered):
        await bench.submit(key="k")
    assert (await bench.slots_taken(), len(await bench.envelopes()), bench.rows()) == (1, 1, [])


async def test_the_repeat_of_such_a_submit_finds_the_run_its_envelope_became(bench: Bench) -> None:
    bench.ports["queue"].after["send"] = [Unanswered("?")]
    with pytest.raises(Unanswered):
        await bench.submit(key="k")
    await bench.claim()
    done = await bench.submit(key="k")
    assert (done.replayed, done.run.status) == (True, Status.RUNNING)


async def test_an_input_that_can_not_be_stored_returns_the_slot(bench: Bench) -> None:
    bench.ports["blobs"].before["put"] = [Unanswered("?")]
    with pytest.raises(Unanswered):
        await bench.submit(input="x" * 10_000)
    assert (await bench.slots_taken(), await bench.envelopes()) == (0, [])


async def test_a_row_refused_at_first_is_put_again(bench: Bench) -> None:
    bench.ports["runs"].before["put"] = [Throttled("no"), Unavailable("no")]
    done = await bench.submit()
    assert bench.rows() == [done.run]


async def test_a_row_put_without_an_answer_is_recognised_as_ones_own(bench: Bench) -> None:
    bench.ports["runs"].after["put"] = [Unanswered("?")]
    done = await bench.submit()
    assert (done.replayed, bench.rows()) == (False, [done.run])
    assert await bench.slots_taken() == 1


async def test_a_row_that_can_not_be_put_is_503_and_the_run_goes_on_without_it(bench: Bench) -> None:
    bench.ports["runs"].before["put"] = [Throttled("no")] * 1_000
    with pytest.raises(Throttled):
        await bench.submit()
    assert (await bench.slots_taken(), len(await bench.envelopes())) == (1, 1)


async def test_a_worker_may_be_faster_than_the_row(bench: Bench) -> None:
    bench.ports["runs"].before["put"] = [bench.claim]
    done = await bench.submit()
    assert (done.replayed, done.run.status) == (False, Status.RUNNING)


@pytest.mark.parametrize("body", ["body", "other"])
async def test_of_two_submits_with_one_key_at_once_one_stands_and_the_other_returns_its_slot(
    bench: Bench, body: str
) -> None:
    async def another() -> None:
        await Bench(bench.memory).submit(key="k", body="body")

    bench.ports["runs"].before["put"] = [another]
    if body == "body":
        assert (await bench.submit(key="k", body=body)).replayed
    else:
        with pytest.raises(KeyReused):
            await bench.submit(key="k", body=body)
    assert (len(bench.rows()), await bench.slots_taken()) == (1, 1)
    assert len(await bench.envelopes()) == 2


async def test_a_refused_return_is_repeated_and_an_unanswered_one_never(bench: Bench) -> None:
    bench.ports["queue"].before["send"] = [Throttled("no")]
    bench.ports["slots"].before["give_back"] = [Throttled("no"), Unanswered("?")]
    with pytest.raises(Throttled):
        await bench.submit()
    assert bench.calls.count("slots.give_back") == 2


async def test_an_expired_run_frees_its_key(bench: Bench) -> None:
    first = await bench.submit(key="k")
    key = RunKey(tenant="acme", run_id=first.run.id)
    gone = replace(first.run, status=Status.CANCELLED, version=2, expires_at=START - timedelta(days=1))
    await bench.memory.runs.put(gone, FirstClaim(submission=first.run.submission), now=START)
    assert await bench.memory.runs.get(key, now=START) is None
    second = await bench.submit(key="k")
    assert (second.replayed, second.run.id) == (False, first.run.id)
    assert second.run.submission != first.run.submission


async def test_run_ids_are_26_characters_that_nobody_mistypes(bench: Bench) -> None:
    ids = {(await bench.submit()).run.id for _ in range(3)} | {(await bench.submit(key="k")).run.id}
    assert len(ids) == 4
    assert all(len(name) == 26 and name.islower() and name.isalnum() for name in ids)


async def test_documents_kept_in_memory_are_bounded_and_read_once_by_many(bench: Bench) -> None:
    versions = []
    for minutes in range(1, 5):
        document = {**TINY, "timeout": f"{minutes}m"}
        versions.append(version_of(document))
        registered = Registered(name="tiny", version=versions[-1], document=document, created_at=START)
        await bench.memory.catalog.register("acme", registered)
    cache = WorkflowCache(bench.ports["catalog"], bench.memory.settings.classes, max_bytes=9_000)
    await asyncio.gather(*(cache.get("acme", "tiny", versions[0]) for _ in range(5)))
    assert bench.calls == ["catalog.version"]
    for version in versions:
        assert (await cache.get("acme", "tiny", version)).version == version
    assert len(bench.calls) == 4
    await cache.get("acme", "tiny", versions[0])
    assert len(bench.calls) == 5
    for tenant in ("acme", "other"):
        with pytest.raises(NotFound):
            await cache.get(tenant, "tiny", "sha256:no")


# --- frozen for hours -------------------------------------------------------------------------


def frozen(bench: Bench) -> Callable[[], Any]:
    """The sandbox stands still for three hours; its monotonic clock need not notice."""

    async def stand_still() -> None:
        clock = bench.memory.clock
        assert isinstance(clock, FakeClock)
        clock.set_now(clock.now() + timedelta(hours=3))

    return stand_still


async def test_an_api_frozen_after_its_send_creates_no_row_because_its_slot_may_be_repaired(bench: Bench) -> None:
    bench.ports["queue"].after["send"] = [frozen(bench)]
    with pytest.raises(Unanswered):
        await bench.submit()
    assert "runs.put" not in bench.calls


async def test_an_api_frozen_before_a_refused_send_returns_no_slot_of_long_ago(bench: Bench) -> None:
    async def refused() -> None:
        await frozen(bench)()
        raise Throttled("busy")

    bench.ports["queue"].before["send"] = [refused]
    with pytest.raises(Throttled):
        await bench.submit()
    assert "slots.give_back" not in bench.calls
    assert await bench.slots_taken() == 1


async def test_a_slot_is_of_the_hour_its_run_was_accepted_in(bench: Bench) -> None:
    clock = bench.memory.clock
    assert isinstance(clock, FakeClock)
    clock.set_now(START + timedelta(minutes=59, seconds=59, milliseconds=999))
    bench.ports["slots"].after["reserve"] = [frozen(bench)]
    with pytest.raises(Unanswered):
        await bench.submit()
    (sent,) = await bench.memory.queue.receive(LANE, limit=1, wait_seconds=0, visibility_seconds=0)
    assert isinstance(sent.message, Envelope)
    assert sent.message.slot is not None
    assert sent.message.slot.hour == int(sent.message.accepted_at.timestamp() // 3600)
