"""What every work queue promises."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fanfold.adapters.message_codec import encode
from fanfold.engine.errors import LimitExceeded
from fanfold.engine.payload import BlobRef
from fanfold.engine.ports import Outgoing, QueueDepth, WorkQueue
from fanfold.engine.record.messages import Envelope, QueueName, Received
from fanfold.engine.record.run import SCHEMA, Slot
from tests.contract.backends import MAX_RECEIVES, Backend
from tests.support.builders import DEAD, LANE, RESUMING, a_wake, an_envelope


@pytest.fixture
def queue(backend: Backend) -> WorkQueue:
    return backend.queue()


async def take(
    queue: WorkQueue, name: QueueName = LANE, *, limit: int = 10, hidden_for: int = 30
) -> Sequence[Received]:
    """What is visible now."""
    return await queue.receive(name, limit=limit, wait_seconds=0, visibility_seconds=hidden_for)


async def take_all(queue: WorkQueue, name: QueueName = LANE) -> list[Received]:
    """Everything that is visible now; one receive may bring less than there is."""
    taken: list[Received] = []
    while more := await take(queue, name):
        taken.extend(more)
    return taken


async def test_a_message_arrives_as_it_was_sent(queue: WorkQueue) -> None:
    await queue.send(LANE, an_envelope())
    (received,) = await take(queue)
    assert received.message == an_envelope()
    assert (received.queue, received.receives, received.newer) == (LANE, 1, False)


@pytest.mark.parametrize(
    "message",
    [
        an_envelope(
            tags={"team": "blau – \u2603"},
            input={"text": "\u0000\U0001f600", "float": 0.1, "big": 2**70, "none": None},
            queue_deadline=datetime(2026, 3, 1, 13, 0, 0, 1000, tzinfo=UTC),
            slot=None,
            outages=3,
            again=True,
            raised=True,
        ),
        an_envelope(input=BlobRef(key="acme/r/in.json", bytes=9, sha256="ab" * 32), slot=Slot(shard=7, hour=492_000)),
        a_wake(outages=2, raised=True),
    ],
    ids=["inline", "by reference", "wake"],
)
async def test_every_part_of_a_message_survives(queue: WorkQueue, message: object) -> None:
    await queue.send(LANE, message)  # type: ignore[arg-type]  # the parameters are messages
    (received,) = await take(queue)
    assert received.message == message


async def test_queues_are_apart(queue: WorkQueue) -> None:
    await queue.send(RESUMING, a_wake())
    assert await take(queue, LANE) == []
    assert [r.message for r in await take(queue, RESUMING)] == [a_wake()]


async def test_a_received_message_is_hidden(queue: WorkQueue) -> None:
    await queue.send(LANE, a_wake())
    assert len(await take(queue)) == 1
    assert await take(queue) == []


async def test_a_message_that_is_not_deleted_comes_back_counted(backend: Backend, queue: WorkQueue) -> None:
    await queue.send(LANE, a_wake())
    (first,) = await take(queue, hidden_for=1)
    await backend.pass_time(1.2)
    (second,) = await take(queue)
    assert (second.message_id, second.receives) == (first.message_id, 2)
    assert second.receipt != first.receipt


async def test_a_deleted_message_does_not_come_back(backend: Backend, queue: WorkQueue) -> None:
    await queue.send(LANE, a_wake())
    await queue.delete(await take(queue, hidden_for=1))
    await backend.pass_time(1.2)
    assert await take(queue) == []


async def test_a_delayed_message_comes_when_its_delay_is_over(backend: Backend, queue: WorkQueue) -> None:
    await queue.send(LANE, a_wake(1), delay_seconds=1)
    await queue.send(LANE, a_wake(2), delay_seconds=60)
    await backend.pass_time(1.2)
    assert [r.message for r in await take_all(queue)] == [a_wake(1)]


async def test_handing_back_shows_the_message_at_once(queue: WorkQueue) -> None:
    await queue.send(LANE, a_wake())
    await queue.hide(await take(queue), seconds=0)
    (again,) = await take(queue)
    assert again.receives == 2


async def test_hiding_again_counts_from_now(backend: Backend, queue: WorkQueue) -> None:
    await queue.send(LANE, a_wake())
    await queue.hide(await take(queue, hidden_for=2), seconds=30)
    await backend.pass_time(2.2)
    assert await take(queue) == []


async def test_stale_receipts_are_passed_over_and_valid_ones_beside_them_count(queue: WorkQueue) -> None:
    await queue.send(LANE, a_wake(1))
    await queue.send(LANE, a_wake(2))
    taken = await take_all(queue)
    dead, live = sorted(taken, key=lambda r: getattr(r.message, "run_id", ""))
    await queue.delete([dead])
    await queue.hide([dead, live], seconds=0)
    (again,) = await take(queue)
    assert again.message == a_wake(2)
    await queue.delete([dead, again])
    assert await queue.depth(LANE) == QueueDepth(visible=0, in_flight=0, delayed=0)


async def test_a_receipt_nobody_ever_gave_is_passed_over(queue: WorkQueue) -> None:
    await queue.send(LANE, a_wake())
    (received,) = await take(queue)
    forged = replace(received, receipt="bm9ib2R5", message_id="nobody")
    await queue.hide([forged], seconds=0)
    await queue.delete([forged])
    assert (await queue.depth(LANE)).in_flight == 1


async def test_hiding_and_deleting_nothing_leaves_every_message_as_it_is(queue: WorkQueue) -> None:
    await queue.send(LANE, a_wake(1))
    await queue.send(LANE, a_wake(2))
    await take(queue, limit=1)
    await queue.hide([], seconds=0)
    await queue.delete([])
    assert await queue.depth(LANE) == QueueDepth(visible=1, in_flight=1, delayed=0)


async def test_more_than_ten_are_hidden_and_deleted_together(queue: WorkQueue) -> None:
    for number in range(23):
        await queue.send(LANE, a_wake(number))
    taken = await take_all(queue)
    assert len(taken) == 23
    await queue.hide(taken, seconds=0)
    again = await take_all(queue)
    assert {r.message for r in again} == {a_wake(number) for number in range(23)}
    await queue.delete(again)
    assert await queue.depth(LANE) == QueueDepth(visible=0, in_flight=0, delayed=0)


async def test_messages_of_several_queues_are_deleted_together(queue: WorkQueue) -> None:
    await queue.send(LANE, an_envelope())
    await queue.send(RESUMING, a_wake())
    await queue.delete([*await take(queue, LANE), *await take(queue, RESUMING)])
    for name in (LANE, RESUMING):
        assert (await queue.depth(name)).in_flight == 0


async def test_a_receive_takes_no_more_than_asked(queue: WorkQueue) -> None:
    for number in range(5):
        await queue.send(LANE, a_wake(number))
    sizes = []
    while taken := await take(queue, limit=2):
        sizes.append(len(taken))
    assert (max(sizes), sum(sizes)) == (2, 5)


async def test_a_long_poll_ends_when_a_message_comes(queue: WorkQueue) -> None:
    poll = asyncio.create_task(queue.receive(LANE, limit=1, wait_seconds=10, visibility_seconds=30))
    await asyncio.sleep(0.05)
    await queue.send(LANE, a_wake())
    (received,) = await asyncio.wait_for(poll, timeout=5)
    assert received.message == a_wake()


async def test_a_long_poll_ends_empty_after_its_time(backend: Backend, queue: WorkQueue) -> None:
    poll = asyncio.create_task(queue.receive(LANE, limit=1, wait_seconds=1, visibility_seconds=30))
    await backend.pass_time(1.2)
    assert await asyncio.wait_for(poll, timeout=5) == []


async def test_a_long_poll_sees_a_delay_run_out(backend: Backend, queue: WorkQueue) -> None:
    await queue.send(LANE, a_wake(), delay_seconds=1)
    poll = asyncio.create_task(queue.receive(LANE, limit=1, wait_seconds=10, visibility_seconds=30))
    await backend.pass_time(1.2)
    assert len(await asyncio.wait_for(poll, timeout=5)) == 1


async def test_the_depth_tells_visible_from_hidden_from_delayed(queue: WorkQueue) -> None:
    for number in range(3):
        await queue.send(LANE, a_wake(number))
    await queue.send(LANE, a_wake(9), delay_seconds=60)
    await take(queue, limit=1)
    assert await queue.depth(LANE) == QueueDepth(visible=2, in_flight=1, delayed=1)


@pytest.mark.parametrize("seconds", [-1, 901])
async def test_a_delay_outside_0_to_900_is_refused(queue: WorkQueue, seconds: int) -> None:
    with pytest.raises(LimitExceeded):
        await queue.send(LANE, a_wake(), delay_seconds=seconds)
    assert await queue.depth(LANE) == QueueDepth(visible=0, in_flight=0, delayed=0)


async def test_the_longest_delay_is_taken(queue: WorkQueue) -> None:
    await queue.send(LANE, a_wake(), delay_seconds=900)
    assert (await queue.depth(LANE)).delayed == 1


@pytest.mark.parametrize("seconds", [-1, 43_201])
async def test_a_visibility_outside_0_to_43200_is_refused(queue: WorkQueue, seconds: int) -> None:
    await queue.send(LANE, a_wake())
    with pytest.raises(LimitExceeded):
        await take(queue, hidden_for=seconds)
    taken = await take(queue)
    assert len(taken) == 1
    with pytest.raises(LimitExceeded):
        await queue.hide(taken, seconds=seconds)


async def test_a_message_over_1_mib_is_refused(queue: WorkQueue) -> None:
    with pytest.raises(LimitExceeded):
        await queue.send(LANE, an_envelope(input="x" * 1_048_577))


async def test_a_message_of_several_100_kb_is_taken(queue: WorkQueue) -> None:
    envelope = an_envelope(input="x" * 900_000)
    await queue.send(LANE, envelope)
    assert [r.message for r in await take(queue)] == [envelope]


@pytest.mark.parametrize("body", ["not JSON", "[]", "{}", '{"kind": "wake"}', '"text"', "NaN"])
async def test_an_unreadable_body_arrives_without_a_message(backend: Backend, queue: WorkQueue, body: str) -> None:
    await backend.send_body(queue, LANE, body)
    (received,) = await take(queue)
    assert (received.body, received.message, received.newer) == (body, None, False)
    await queue.delete([received])
    assert (await queue.depth(LANE)).in_flight == 0


async def test_an_unreadable_body_takes_no_neighbour_along(backend: Backend, queue: WorkQueue) -> None:
    await backend.send_body(queue, LANE, "not JSON")
    await queue.send(LANE, a_wake())
    assert {r.message for r in await take_all(queue)} == {None, a_wake()}


async def test_a_message_of_newer_code_arrives_marked(backend: Backend, queue: WorkQueue) -> None:
    newer = encode(a_wake()).replace(f'"z":{SCHEMA}', f'"z":{SCHEMA + 1}')
    await backend.send_body(queue, LANE, newer)
    await queue.send(LANE, a_wake(2))
    taken = sorted(await take_all(queue), key=lambda r: r.newer)
    assert [(r.message, r.newer) for r in taken] == [(a_wake(2), False), (None, True)]


async def test_a_message_received_too_often_goes_to_the_dead_queue_of_its_class(queue: WorkQueue) -> None:
    await queue.send(LANE, an_envelope())
    for count in range(1, MAX_RECEIVES + 1):
        (received,) = await take(queue)
        assert received.receives == count
        await queue.hide([received], seconds=0)
    assert await take(queue) == []
    (dead,) = await queue.receive(DEAD, limit=10, wait_seconds=2, visibility_seconds=30)
    assert dead.message == an_envelope()
    assert await queue.depth(LANE) == QueueDepth(visible=0, in_flight=0, delayed=0)


async def test_a_message_given_up_on_does_not_keep_the_next_one_waiting(queue: WorkQueue) -> None:
    await queue.send(LANE, a_wake(1))
    for _ in range(MAX_RECEIVES):
        await queue.hide(await take(queue), seconds=0)
    await queue.send(LANE, a_wake(2))
    poll = queue.receive(LANE, limit=1, wait_seconds=10, visibility_seconds=30)
    assert [r.message for r in await asyncio.wait_for(poll, timeout=5)] == [a_wake(2)]


# --- many at once -------------------------------------------------------------------------------


async def test_many_are_sent_together_each_as_it_would_be_alone(queue: WorkQueue) -> None:
    messages = [an_envelope(number, tenant=f"t{number % 3}") for number in range(23)]
    outcomes = await queue.send_many(LANE, [Outgoing(message=message) for message in messages])
    assert outcomes == [None] * 23
    arrived = {r.message.run_id: r.message for r in await take_all(queue) if isinstance(r.message, Envelope)}
    assert [arrived[message.run_id] for message in messages] == messages


async def test_each_of_many_has_a_delay_of_its_own(queue: WorkQueue) -> None:
    outgoing = [Outgoing(message=a_wake(n), delay_seconds=delay) for n, delay in enumerate((0, 60, 900))]
    assert await queue.send_many(LANE, outgoing) == [None] * 3
    assert await queue.depth(LANE) == QueueDepth(visible=1, in_flight=0, delayed=2)


async def test_what_can_not_be_sent_is_told_in_its_place_and_spoils_no_other(queue: WorkQueue) -> None:
    good = [Outgoing(message=a_wake(number)) for number in range(12)]
    bad = [
        Outgoing(message=a_wake(90), delay_seconds=901),
        Outgoing(message=an_envelope(91, input="x" * 1_048_577)),
    ]
    outcomes = await queue.send_many(LANE, [bad[0], *good[:6], bad[1], *good[6:]])
    refused = [position for position, outcome in enumerate(outcomes) if outcome is not None]
    assert refused == [0, 7]
    limits = [error.limit for error in outcomes if isinstance(error, LimitExceeded)]
    assert limits == ["sqs.delay_seconds", "sqs.message_bytes"]
    assert {r.message for r in await take_all(queue)} == {outgoing.message for outgoing in good}


@pytest.mark.parametrize("tenant", ["t" * 64, "9", "A.b_c-"])
async def test_the_longest_and_the_oddest_tenants_names_are_groups_to_the_queue(queue: WorkQueue, tenant: str) -> None:
    await queue.send(LANE, a_wake(1, tenant=tenant))
    assert await queue.send_many(LANE, [Outgoing(message=a_wake(2, tenant=tenant))]) == [None]
    assert {r.message for r in await take_all(queue)} == {a_wake(1, tenant=tenant), a_wake(2, tenant=tenant)}


async def test_big_messages_go_in_more_calls_than_small_ones(queue: WorkQueue) -> None:
    messages = [an_envelope(number, input="x" * 400_000) for number in range(6)]
    assert await queue.send_many(LANE, [Outgoing(message=message) for message in messages]) == [None] * 6
    assert len(await take_all(queue)) == 6


async def test_sending_nothing_sends_nothing(queue: WorkQueue) -> None:
    assert await queue.send_many(LANE, []) == []
    assert await queue.depth(LANE) == QueueDepth(visible=0, in_flight=0, delayed=0)
