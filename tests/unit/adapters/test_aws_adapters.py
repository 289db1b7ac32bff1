"""The AWS adapters where the service is at its limits: what emulators never answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fanfold.adapters.aws.calls import Refused
from fanfold.adapters.aws.run_items import head_key, to_item
from fanfold.adapters.aws.run_store import BATCH_TRIES, DynamoRunStore
from fanfold.adapters.aws.slots import DynamoSlots
from fanfold.adapters.aws.sqs import SqsQueue, received
from fanfold.adapters.aws.stepfunctions import StepFunctionsFanOut
from fanfold.engine.errors import Conflict, NewerSchema, QueueFull, Throttled, Unanswered, Unavailable
from fanfold.engine.ports import Execution, IfAbsent, Outgoing
from fanfold.engine.record.run import Slot
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.wiring import services
from tests.support.builders import LANE, a_run, a_wake, an_envelope, key_of
from tests.support.calls import ScriptedCall
from tests.support.clock import START, FakeClock, SeededIds

TABLE = "t"
FULL = Conflict({"c": {"N": "2"}, "m": {"N": "2"}})


async def no_wait(seconds: float) -> None:
    """Nothing waits in these tests."""


def left_over(*numbers: int) -> dict[str, Any]:
    """What BatchGetItem answers for keys it did not get to."""
    return {TABLE: {"Keys": [head_key("acme", a_run(number).id) for number in numbers]}}


async def test_keys_that_a_batch_leaves_over_are_asked_for_again() -> None:
    one, two = a_run(1), a_run(2)
    call = ScriptedCall(
        {"Responses": {TABLE: [to_item(one)]}, "UnprocessedKeys": left_over(2)},
        {"Responses": {TABLE: [to_item(two)]}, "UnprocessedKeys": {}},
    )
    store = DynamoRunStore(call, TABLE, sleep=no_wait)
    found = await store.get_many([key_of(one), key_of(two)], now=START)
    assert found == {key_of(one): one, key_of(two): two}


async def test_keys_that_are_left_over_for_ever_are_a_throttle() -> None:
    call = ScriptedCall(*[{"Responses": {}, "UnprocessedKeys": left_over(1)}] * BATCH_TRIES)
    with pytest.raises(Throttled):
        await DynamoRunStore(call, TABLE, sleep=no_wait).get_many([key_of(a_run(1))], now=START)


async def test_a_conflict_with_a_record_of_newer_code_is_not_decided_on() -> None:
    call = ScriptedCall(Conflict({**to_item(a_run()), "z": {"N": "99"}}))
    with pytest.raises(NewerSchema):
        await DynamoRunStore(call, TABLE).put(a_run(), IfAbsent(), now=START)


def slots(call: ScriptedCall, clock: FakeClock, *, limit: int = 2) -> DynamoSlots:
    return DynamoSlots(call, TABLE, {"model": limit}, clock=clock, ids=SeededIds())


async def test_a_process_that_found_a_class_full_refuses_for_a_second_without_asking() -> None:
    call, clock = ScriptedCall(FULL, {}), FakeClock()
    it = slots(call, clock)
    for _ in range(3):
        with pytest.raises(QueueFull) as full:
            await it.reserve("model", now=START)
        assert (full.value.limit, full.value.retry_after_seconds) == (2, 5)
    assert len(call.asked) == 1
    await clock.advance(1.1)
    assert (await it.reserve("model", now=START)).slot == Slot(shard=0, hour=int(START.timestamp()) // 3600)


async def test_a_slot_this_process_gave_back_can_be_taken_at_once() -> None:
    call = ScriptedCall(FULL, {}, {})
    it = slots(call, FakeClock())
    with pytest.raises(QueueFull):
        await it.reserve("model", now=START)
    await it.give_back("model", Slot(shard=0, hour=1))
    await it.reserve("model", now=START)


async def test_a_refusal_says_when_a_hundredth_of_the_bound_has_drained() -> None:
    sampled = {"t0": "60000", "d0": "100", "t1": "120000", "d1": "400"}  # 300 in a minute: 5 a second
    item = {"c": "3000", "m": "3000", **sampled}
    call = ScriptedCall(Conflict({name: {"N": value} for name, value in item.items()}))
    with pytest.raises(QueueFull) as full:
        await slots(call, FakeClock(), limit=3_000).reserve("model", now=START)
    assert full.value.retry_after_seconds == 6


@pytest.mark.parametrize("error", [Throttled("load"), Unanswered("lost")])
async def test_a_slot_is_asked_for_once_whatever_happens(error: Exception) -> None:
    call = ScriptedCall(error, {})
    with pytest.raises(type(error)):
        await slots(call, FakeClock()).reserve("model", now=START)
    assert len(call.asked) == 1


async def test_every_message_is_sent_in_its_tenants_group() -> None:
    call = ScriptedCall({}, {"Successful": [{"Id": "0"}, {"Id": "1"}]})
    it = SqsQueue(call, {LANE: "url"})
    await it.send(LANE, a_wake(tenant="acme"))
    await it.send_many(LANE, [Outgoing(message=a_wake(tenant=name)) for name in ("acme", "t" * 64)])
    (_, alone), (_, together) = call.asked
    assert alone["MessageGroupId"] == "acme"
    assert [entry["MessageGroupId"] for entry in together["Entries"]] == ["acme", "t" * 64]


async def test_without_fair_queues_no_message_names_a_group() -> None:
    call = ScriptedCall({}, {"Successful": [{"Id": "0"}]})
    it = services(Settings(classes={"model": ClassSettings(queues={"normal": "url"})}, fair_queues=False), call).queue
    await it.send(LANE, a_wake())
    await it.send_many(LANE, [Outgoing(message=a_wake())])
    (_, alone), (_, together) = call.asked
    assert "MessageGroupId" not in {*alone, *together["Entries"][0]}


def deliveries(count: int) -> list[Any]:
    return [received(LANE, message_id=f"m{n}", receipt=f"r{n}", body="", receives=1) for n in range(count)]


@pytest.mark.parametrize(
    "code",
    [
        "ReceiptHandleIsInvalid",
        "AWS.SimpleQueueService.MessageNotInflight",
        "InvalidParameterValue",
        "InvalidParameterValueException",
    ],
)
async def test_receipts_that_are_no_longer_valid_are_passed_over(code: str) -> None:
    call = ScriptedCall({"Failed": [{"Id": "0", "Code": code, "SenderFault": True}]})
    await SqsQueue(call, {LANE: "u"}).hide(deliveries(1), seconds=60)


@pytest.mark.parametrize(
    ("code", "sender_fault", "expected"),
    [("InternalError", False, Unanswered), ("RequestThrottled", True, Throttled), ("AccessDenied", True, Refused)],
)
async def test_any_other_failure_of_one_message_is_raised_when_all_were_tried(
    code: str, sender_fault: bool, expected: type[Exception]
) -> None:
    call = ScriptedCall({"Failed": [{"Id": "0", "Code": code, "SenderFault": sender_fault}]}, {})
    with pytest.raises(expected):
        await SqsQueue(call, {LANE: "u"}).delete(deliveries(11))
    assert len(call.asked) == 2


def wakes(count: int) -> list[Outgoing]:
    return [Outgoing(message=a_wake(number)) for number in range(count)]


async def test_of_messages_sent_together_each_has_its_own_outcome() -> None:
    failures = [
        {"Id": "1", "Code": "RequestThrottled", "SenderFault": True},
        {"Id": "2", "Code": "InternalError", "SenderFault": False},
        {"Id": "3", "Code": "AWS.SimpleQueueService.AccessDenied", "SenderFault": True},
    ]
    call = ScriptedCall({"Successful": [{"Id": "0"}], "Failed": failures})
    outcomes = await SqsQueue(call, {LANE: "u"}).send_many(LANE, wakes(5))
    # The fifth is named nowhere in the answer: perhaps it was sent.
    assert [type(outcome) for outcome in outcomes] == [type(None), Throttled, Unanswered, Refused, Unanswered]


@pytest.mark.parametrize("error", [Throttled("load"), Unavailable("down"), Unanswered("lost")])
async def test_a_call_that_fails_is_the_outcome_of_its_own_messages_alone(error: Exception) -> None:
    sent = {"Successful": [{"Id": str(number)} for number in range(10, 12)]}
    call = ScriptedCall(error, sent)
    outcomes = await SqsQueue(call, {LANE: "u"}).send_many(LANE, wakes(12))
    assert outcomes == [error] * 10 + [None] * 2


async def test_messages_sent_together_take_a_call_for_ten_and_for_a_mebibyte() -> None:
    async def batches(*sizes: int) -> list[int]:
        call = ScriptedCall(*[{}] * 20)
        outgoing = [Outgoing(message=an_envelope(n, input="x" * size)) for n, size in enumerate(sizes)]
        await SqsQueue(call, {LANE: "u"}).send_many(LANE, outgoing)
        return [len(parameters["Entries"]) for _, parameters in call.asked]

    assert await batches(*[1] * 25) == [10, 10, 5]
    assert await batches(*[500_000] * 5) == [2, 2, 1]
    assert await batches(1, 1_000_000, 100_000, 1) == [2, 2]


MACHINES = {"model": "arn:aws:states:us-east-1:123456789012:stateMachine:Maps"}
EXECUTION = Execution(
    name="r1-files-1-s1",
    class_name="model",
    tenant="acme",
    run_id="r1",
    submission="s1",
    step="files",
    try_number=1,
    batches="acme/r1/s1/files/map-1-w1.batches",
    batches_at_once=4,
)


@pytest.mark.parametrize(
    ("answer", "throttled"),
    [
        ({"status": "SUCCEEDED", "output": json.dumps({"try": 1, "answers": ["recorded", "throttled"]})}, True),
        ({"status": "SUCCEEDED", "output": json.dumps({"try": 1, "answers": ["recorded", "known"]})}, False),
        ({"status": "SUCCEEDED", "output": json.dumps({"try": 1, "answers": [["dead", "throttled"]]})}, True),
        ({"status": "SUCCEEDED", "output": json.dumps({"try": 1, "answers": ["known", ["dead", "recorded"]]})}, False),
        ({"status": "SUCCEEDED", "output": json.dumps({"try": 1})}, False),  # started by a version that did not ask
        ({"status": "SUCCEEDED"}, False),
        ({"status": "RUNNING"}, False),
        ({"status": "ABORTED"}, False),
        (Refused("ExecutionDoesNotExist", "there is none"), False),
    ],
)
async def test_an_execution_tells_whether_some_of_its_batches_found_no_room(answer: Any, throttled: bool) -> None:
    assert await StepFunctionsFanOut(ScriptedCall(answer), MACHINES).throttled(EXECUTION) is throttled


@pytest.mark.parametrize(("most", "asked"), [({}, 4), ({"model": 2}, 2), ({"model": 40}, 4), ({"other": 1}, 4)])
async def test_a_map_asks_for_no_more_batches_at_once_than_its_class_may_have(most: Any, asked: int) -> None:
    call = ScriptedCall({})
    assert await StepFunctionsFanOut(call, MACHINES, most).start(EXECUTION)
    ((_, given),) = call.asked
    assert json.loads(given["input"])["batches_at_once"] == asked
