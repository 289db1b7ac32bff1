"""Dead letters: lost envelopes go back, nothing is failed, nothing is lost in silence (R13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fanfold.adapters.message_codec import encode
from fanfold.engine.errors import Throttled, Unanswered
from fanfold.engine.ports import IfAbsent
from fanfold.engine.record.messages import Envelope, Message, Received
from fanfold.engine.record.run import Run, Status
from fanfold.service.dead_letters import revive
from fanfold.service.functions.deadletter import build
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.wiring import Services
from tests.support.builders import DEAD, LANE, a_full_run, a_run, a_wake, an_envelope
from tests.support.clock import START, FakeClock
from tests.support.memory import memory_services


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def services(clock: FakeClock) -> Services:
    return memory_services(clock)


async def dead_letter(services: Services, message: Message) -> Received:
    await services.queue.send(DEAD, message)
    return (await services.queue.receive(DEAD, limit=1, wait_seconds=0, visibility_seconds=60))[0]


async def in_lane(services: Services) -> Sequence[Message | None]:
    found = await services.queue.receive(LANE, limit=10, wait_seconds=0, visibility_seconds=60)
    return [received.message for received in found]


async def stored(services: Services, run: Run) -> None:
    await services.runs.put(run, IfAbsent(), now=START)


async def test_an_envelope_without_a_row_comes_to_its_lane_in_a_quarter_of_an_hour(
    services: Services, clock: FakeClock
) -> None:
    envelope = an_envelope(outages=2)
    letter = await dead_letter(services, envelope)
    assert await revive(services, [letter], now=clock.now()) == []
    assert await in_lane(services) == []
    await clock.advance(900)
    assert await in_lane(services) == [replace(envelope, again=True)]


async def test_an_envelope_of_a_queued_run_goes_back_too(services: Services, clock: FakeClock) -> None:
    await stored(services, a_run())
    letter = await dead_letter(services, an_envelope())
    assert await revive(services, [letter], now=clock.now()) == []
    await clock.advance(900)
    assert await in_lane(services) == [an_envelope(again=True)]


@pytest.mark.parametrize("run", [a_full_run(), a_run(status=Status.SUCCEEDED), a_run(submission="another")])
async def test_an_envelope_whose_run_is_further_on_is_dropped(services: Services, clock: FakeClock, run: Run) -> None:
    await stored(services, run)
    letter = await dead_letter(services, an_envelope())
    assert await revive(services, [letter], now=clock.now()) == []
    await clock.advance(900)
    assert await in_lane(services) == []


async def test_a_wake_is_dropped(services: Services, clock: FakeClock) -> None:
    letter = await dead_letter(services, a_wake())
    assert await revive(services, [letter], now=clock.now()) == []


async def test_an_envelope_older_than_any_message_may_be_creates_no_run(services: Services, clock: FakeClock) -> None:
    letter = await dead_letter(services, an_envelope(accepted_at=START - timedelta(days=14, seconds=1)))
    assert await revive(services, [letter], now=clock.now()) == []
    await clock.advance(900)
    assert await in_lane(services) == []


@pytest.mark.parametrize("newer", [False, True])
async def test_what_can_not_be_read_stays(services: Services, clock: FakeClock, newer: bool) -> None:
    letter = replace(await dead_letter(services, an_envelope()), message=None, newer=newer)
    assert await revive(services, [letter], now=clock.now()) == [letter.message_id]


async def test_an_envelope_for_a_lane_that_is_gone_stays(services: Services, clock: FakeClock) -> None:
    letter = await dead_letter(services, an_envelope(lane="express"))
    assert await revive(services, [letter], now=clock.now()) == [letter.message_id]


@pytest.mark.parametrize("error", [Throttled("busy"), Unanswered("silence")])
async def test_what_a_service_refuses_stays_and_takes_no_other_along(
    services: Services, clock: FakeClock, error: Exception
) -> None:
    send = services.queue.send

    async def broken(queue: Any, message: Message, *, delay_seconds: int = 0) -> None:
        if isinstance(message, Envelope) and message.run_id == an_envelope(2).run_id:
            raise error
        await send(queue, message, delay_seconds=delay_seconds)

    letters = [await dead_letter(services, an_envelope(number)) for number in (1, 2, 3)]
    services.queue.send = broken  # type: ignore[method-assign]  # one service call fails
    assert await revive(services, letters, now=clock.now()) == [letters[1].message_id]
    await clock.advance(900)
    assert len(await in_lane(services)) == 2


def test_the_handler_lists_what_stays() -> None:
    settings = Settings(classes={"model": ClassSettings(queues={"dead": "https://sqs.test/1/app-model-dead"})})
    records = [
        {
            "messageId": name,
            "receiptHandle": name,
            "body": body,
            "attributes": {"ApproximateReceiveCount": "1"},
            "eventSourceARN": "arn:aws:sqs:us-east-1:1:app-model-dead",
        }
        for name, body in [("good", encode(an_envelope())), ("bad", "{")]
    ]
    answer = build(memory_services(FakeClock(), settings))({"Records": records}, None)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "bad"}]}
