"""The sweeper: what was lost is found, what is due gets a wake, and a pass is bounded (R14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fanfold.engine.errors import Throttled, Unanswered
from fanfold.engine.ports import DueKey, IfAbsent, RunKey
from fanfold.engine.record.messages import Message, QueueName, Wake, envelope_of, first_version
from fanfold.engine.record.run import Reason, Run, Status
from fanfold.service.engine_limits import engine_limits
from fanfold.service.functions.sweeper import build
from fanfold.service.settings import Settings
from fanfold.service.sweeper.expire_queued import QueueExpiry
from fanfold.service.sweeper.sweep import SweepReport, sweep
from fanfold.service.workflow_cache import WorkflowCache
from tests.support.builders import LANE, RESUMING, a_run, a_token, a_wake, a_workflow, an_envelope, an_id
from tests.support.clock import START, FakeClock
from tests.support.memory import memory_services


class Deployment:
    """A deployment in memory whose sweeper runs when the test says so."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.services = memory_services(self.clock, Settings(**settings))
        self.limits = engine_limits(self.services.settings)
        self.settle = QueueExpiry(
            self.services, WorkflowCache(self.services.catalog, self.services.settings.classes), self.limits
        )

    @classmethod
    async def with_tenant(cls, *tenants: str, **settings: Any) -> Deployment:
        it = cls(**settings)
        for number, tenant in enumerate(tenants or ("acme",)):
            await it.services.tokens.put(a_token(number, tenant=tenant))
        await it.services.catalog.register("acme", a_workflow())
        return it

    async def stored(self, *runs: Run) -> None:
        for run in runs:
            await self.services.runs.put(run, IfAbsent(), now=self.clock.now())

    async def sweep(self) -> SweepReport:
        return await sweep(self.services, self.limits, now=self.clock.now(), expire=self.settle)

    async def passes(self, count: int) -> list[SweepReport]:
        """A pass a minute."""
        reports = []
        for _ in range(count):
            reports.append(await self.sweep())
            await self.clock.advance(60)
        return reports

    async def messages(self, queue: QueueName) -> Sequence[Message | None]:
        found: list[Message | None] = []
        while batch := await self.services.queue.receive(queue, limit=10, wait_seconds=0, visibility_seconds=43_200):
            found += [received.message for received in batch]
            await self.services.queue.delete(batch)
        return found

    async def row(self, number: int = 1) -> Run:
        run = await self.services.runs.get(RunKey(tenant="acme", run_id=an_id(number)), now=self.clock.now())
        assert run is not None
        return run


def waiting(number: int, due_at: datetime, **given: Any) -> Run:
    return a_run(number, status=Status.WAITING, version=3, epoch=1, owner="c000000000000001", due_at=due_at, **given)


def running(number: int, lease_until: datetime) -> Run:
    return a_run(number, status=Status.RUNNING, version=2, epoch=1, owner="c000000000000001", lease_until=lease_until)


def queued(number: int = 1, **given: Any) -> Run:
    """A row as a submit creates it."""
    return replace(first_version(an_envelope(number, **given)), write_id=f"w{number:015d}")


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_the_envelope_of_a_queued_row_makes_the_same_row_again() -> None:
    run = first_version(an_envelope(tags={"team": "blue"}, queue_deadline=after(60), slot=None))
    assert first_version(envelope_of(run)) == run


# --- what is due ------------------------------------------------------------------------------


async def test_a_run_whose_wake_was_lost_is_rung_for() -> None:
    it = await Deployment.with_tenant()
    await it.stored(waiting(1, due_at=after(-30)))
    report = await it.sweep()
    assert report.wakes_sent == 1
    assert await it.messages(RESUMING) == [a_wake(1)]


async def test_a_wake_for_what_is_not_due_yet_arrives_when_it_is() -> None:
    it = await Deployment.with_tenant()
    await it.stored(waiting(1, due_at=after(100.4)))
    await it.sweep()
    await it.clock.advance(100)
    assert await it.messages(RESUMING) == []
    await it.clock.advance(1)
    assert await it.messages(RESUMING) == [a_wake(1)]


async def test_what_is_due_later_is_left_to_later_passes() -> None:
    it = await Deployment.with_tenant()
    await it.stored(waiting(1, due_at=after(200)))
    assert (await it.sweep()).wakes_sent == 0


async def test_a_run_is_rung_for_once_before_it_is_due_and_once_a_pass_after() -> None:
    it = await Deployment.with_tenant()
    await it.stored(waiting(1, due_at=after(200)))
    reports = await it.passes(6)
    assert [report.wakes_sent for report in reports] == [0, 1, 0, 0, 1, 1]


async def test_overdue_wakes_are_spread_over_the_minute() -> None:
    it = await Deployment.with_tenant(sweep_wakes=120)
    await it.stored(*(waiting(number, due_at=after(-number)) for number in range(1, 101)))
    assert (await it.sweep()).wakes_sent == 100
    assert len(await it.messages(RESUMING)) == 2
    await it.clock.advance(10)
    assert len(await it.messages(RESUMING)) == 20
    await it.clock.advance(50)
    assert len(await it.messages(RESUMING)) == 78


async def test_a_class_gets_no_more_wakes_than_its_resume_queue_has_room_for() -> None:
    it = await Deployment.with_tenant(sweep_wakes=10)
    await it.stored(*(waiting(number, due_at=after(-number)) for number in range(1, 31)))
    for number in range(4):
        await it.services.queue.send(RESUMING, a_wake(100 + number))
    assert (await it.sweep()).wakes_sent == 6
    assert (await it.sweep()).wakes_sent == 0
    woken = {m.run_id for m in await it.messages(RESUMING) if isinstance(m, Wake)}
    await it.clock.advance(60)
    woken |= {m.run_id for m in await it.messages(RESUMING) if isinstance(m, Wake)}
    assert {an_id(number) for number in range(25, 31)} <= woken, "the oldest first"


async def test_a_wake_that_found_no_room_is_not_forgotten() -> None:
    it = await Deployment.with_tenant(sweep_wakes=2)
    await it.stored(*(waiting(number, due_at=after(100 + number)) for number in range(1, 5)))
    assert (await it.sweep()).wakes_sent == 2
    await it.clock.advance(105)
    await it.messages(RESUMING)
    assert (await it.sweep()).wakes_sent == 2


async def test_a_run_that_went_on_while_the_index_lagged_is_not_rung_for() -> None:
    it = await Deployment.with_tenant()
    await it.stored(running(1, lease_until=after(50)))

    async def due(class_name: str, until: datetime, *, limit: int) -> Sequence[DueKey]:
        return [DueKey(tenant="acme", run_id=an_id(number), due_at=after(-10)) for number in (1, 9)]

    it.services.runs.due = due  # type: ignore[method-assign]  # the index still shows what was
    assert (await it.sweep()).wakes_sent == 0


# --- dead leases ------------------------------------------------------------------------------


async def test_a_run_whose_worker_died_is_rung_for() -> None:
    it = await Deployment.with_tenant()
    await it.stored(running(1, lease_until=after(-10)), running(2, lease_until=after(-3)), running(3, after(40)))
    report = await it.sweep()
    assert (report.checked, report.rescued) == (3, 1)
    assert await it.messages(RESUMING) == [a_wake(1)]


async def test_a_lease_from_a_clock_gone_wrong_counts_as_over() -> None:
    it = await Deployment.with_tenant()
    await it.stored(running(1, lease_until=after(3_600)))
    assert (await it.sweep()).rescued == 1


# --- queued runs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "reason"),
    [({"deadline": after(60)}, Reason.TIMED_OUT), ({"queue_deadline": after(60)}, Reason.EXPIRED_IN_QUEUE)],
)
async def test_a_queued_run_out_of_time_fails_and_returns_its_slot(given: dict[str, Any], reason: Reason) -> None:
    it = await Deployment.with_tenant()
    slot = (await it.services.slots.reserve("model", now=START)).slot
    await it.stored(queued(1, slot=slot, **given))
    await it.clock.advance(119)
    assert (await it.sweep()).expired == 0
    await it.clock.advance(1)
    assert (await it.sweep()).expired == 1
    run = await it.row()
    assert (run.status, run.reason) == (Status.FAILED, reason)
    assert (await it.services.slots.load("model")).depth == 0


async def test_a_run_that_was_claimed_meanwhile_is_not_settled() -> None:
    it = await Deployment.with_tenant()
    stale = queued(1, deadline=after(10))
    await it.stored(running(1, lease_until=after(50)))
    await it.clock.advance(100)
    assert not await it.settle(stale)
    assert (await it.row()).status is Status.RUNNING


async def test_a_settlement_whose_answer_was_lost_is_recognised() -> None:
    it = await Deployment.with_tenant()
    slot = (await it.services.slots.reserve("model", now=START)).slot
    run = queued(1, slot=slot, deadline=after(10))
    await it.stored(run)
    await it.clock.advance(100)
    put = it.services.runs.put

    async def unanswered(*args: Any, **given: Any) -> None:
        await put(*args, **given)
        raise Unanswered("silence")

    it.services.runs.put = unanswered  # type: ignore[method-assign]  # the answer is lost
    assert await it.settle(run)
    assert (await it.services.slots.load("model")).depth == 0


async def test_the_envelope_of_a_queued_run_is_sent_again_when_its_lane_is_empty_twice() -> None:
    it = await Deployment.with_tenant()
    await it.stored(queued(1))
    first, second = await it.passes(2)
    assert (first.resent, second.resent) == (0, 1)
    assert await it.messages(LANE) == [an_envelope(1, again=True)]


async def test_a_run_accepted_between_the_passes_is_given_time() -> None:
    it = await Deployment.with_tenant()
    await it.passes(1)
    await it.stored(queued(1, accepted_at=it.clock.now()))
    assert (await it.sweep()).resent == 0


async def test_messages_in_the_lane_mean_that_the_envelope_may_be_among_them() -> None:
    it = await Deployment.with_tenant()
    await it.stored(queued(1))
    await it.services.queue.send(LANE, an_envelope(2), delay_seconds=900)
    assert [report.resent for report in await it.passes(3)] == [0, 0, 0]


async def test_an_envelope_in_the_hands_of_a_dead_worker_does_not_count() -> None:
    it = await Deployment.with_tenant()
    await it.stored(queued(1))
    await it.services.queue.send(LANE, an_envelope(1))
    await it.services.queue.receive(LANE, limit=1, wait_seconds=0, visibility_seconds=43_200)
    assert [report.resent for report in await it.passes(2)] == [0, 1]


async def test_a_run_queued_for_days_gets_its_envelope_again_about_once_a_day() -> None:
    it = await Deployment.with_tenant()
    await it.stored(queued(1, deadline=START + timedelta(days=30)))
    await it.services.queue.send(LANE, an_envelope(2))
    await it.clock.advance(86_400 - 90)
    first = [report.resent for report in await it.passes(10)]
    assert first[:2] == [0, 0]
    assert 1 <= sum(first) <= 2
    await it.clock.advance(86_400)
    assert 1 <= sum(report.resent for report in await it.passes(10)) <= 2


# --- bounds and breakage ----------------------------------------------------------------------


async def test_a_pass_looks_at_a_part_and_the_next_goes_on_from_there() -> None:
    it = await Deployment.with_tenant("acme", "beta", "gone", sweep_batch=4)
    await it.stored(*(running(number, lease_until=after(-10)) for number in range(1, 7)))
    await it.stored(*(replace(running(number, lease_until=after(-10)), tenant="beta") for number in range(1, 4)))
    reports = await it.passes(3)
    assert [report.checked for report in reports] == [4, 4, 1]
    assert sum(report.rescued for report in reports) == 9
    assert [report.turn_seconds for report in reports] == [None, None, 120.0]


async def test_many_tenants_without_runs_do_not_hold_the_cursor_up() -> None:
    it = await Deployment.with_tenant("acme", *(f"empty{number:03d}" for number in range(120)), "zeta")
    await it.stored(replace(running(1, lease_until=after(-10)), tenant="zeta"))
    assert [report.rescued for report in await it.passes(3)] == [0, 0, 1]


async def test_the_oldest_queued_run_and_the_drain_are_remembered() -> None:
    it = await Deployment.with_tenant()
    await it.stored(queued(1, accepted_at=after(-100)), queued(2, accepted_at=after(-50)))
    await it.passes(2)
    load = await it.services.slots.load("model")
    assert load.oldest_accepted_at == after(-100)
    assert load.drain_per_second == 0


async def test_what_fails_for_one_run_fails_for_no_other() -> None:
    it = await Deployment.with_tenant()
    await it.stored(*(waiting(number, due_at=after(-number)) for number in (1, 2, 3)))
    send = it.services.queue.send

    async def broken(queue: QueueName, message: Message, *, delay_seconds: int = 0) -> None:
        if message.run_id == an_id(2):
            raise Throttled("busy")
        await send(queue, message, delay_seconds=delay_seconds)

    it.services.queue.send = broken  # type: ignore[method-assign]  # one service call fails
    report = await it.sweep()
    assert (report.wakes_sent, report.failed) == (2, 1)


async def test_a_part_that_fails_is_reported_after_the_others_were_done() -> None:
    it = await Deployment.with_tenant()
    await it.stored(running(1, lease_until=after(-10)))

    async def due(class_name: str, until: datetime, *, limit: int) -> Sequence[DueKey]:
        raise Throttled("busy")

    it.services.runs.due = due  # type: ignore[method-assign]  # one service call fails
    with pytest.raises(ExceptionGroup, match="parts of the sweep"):
        await it.sweep()
    assert await it.messages(RESUMING) == [a_wake(1)]


async def test_a_run_of_a_class_that_is_gone_is_counted_and_left() -> None:
    it = await Deployment.with_tenant()
    await it.stored(waiting(1, due_at=after(-10), class_name="harness"), a_run(2, lane="express"))
    report = await it.sweep()
    assert (report.wakes_sent, report.resent, report.failed) == (0, 0, 0)
    assert report.unknown_class >= 2


def test_the_handler_answers_with_the_report() -> None:
    it = Deployment()
    report = build(it.services)({}, None)
    assert (report["checked"], report["failed"]) == (0, 0)


async def test_a_cursor_that_another_version_of_the_code_left_is_forgotten() -> None:
    it = await Deployment.with_tenant()
    await it.stored(running(1, lease_until=after(-10)))
    await it.services.sweeper_state.put("sweep.cursor", {"tenant": "zeta", "page": 3})
    assert (await it.sweep()).rescued == 1
