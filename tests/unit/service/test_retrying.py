"""Calls are repeated as their policy says."""

from __future__ import annotations

import pytest

from fanfold.engine.errors import InfrastructureError, NewerSchema, Throttled, Unanswered, Unreadable
from fanfold.service.retrying import AT_ONCE, WHILE_LEGIBLE, Patience, doubling, insist
from tests.support.virtual import VirtualClock, loop, virtually


class Answers:
    """A call that fails with these errors, one after the other, and then answers; the times it is made at."""

    def __init__(self, *errors: InfrastructureError) -> None:
        self._errors = list(errors)
        self.times: list[float] = []

    async def __call__(self) -> str:
        self.times.append(round(loop().time(), 3))
        if self._errors:
            raise self._errors.pop(0)
        return "done"


@virtually
async def test_a_call_is_repeated_until_it_answers_and_the_last_pause_repeats() -> None:
    call = Answers(*(Throttled("busy") for _ in range(5)))
    begun = loop().time()
    assert await insist(VirtualClock(), call) == "done"
    assert [round(time - begun, 1) for time in call.times] == [0, 0.1, 0.4, 1.4, 4.4, 7.4]


@virtually
async def test_no_pause_begins_that_ends_later_than_the_budget() -> None:
    call = Answers(*(Throttled(f"busy {n}") for n in range(9)))
    begun = loop().time()
    with pytest.raises(Throttled, match="busy 2"):
        await insist(VirtualClock(), call, Patience(pauses_seconds=doubling(0.5, 1.0), budget_seconds=2.0))
    assert [round(time - begun, 1) for time in call.times] == [0, 0.5, 1.5]


@virtually
async def test_what_is_final_is_raised_at_once() -> None:
    call = Answers(Throttled("busy"), Unanswered("who knows"))
    with pytest.raises(Unanswered):
        await insist(
            VirtualClock(),
            call,
            Patience(pauses_seconds=(1.0,), final=lambda error: isinstance(error, Unanswered)),
        )
    assert len(call.times) == 2


@virtually
async def test_what_is_damaged_is_read_once_and_what_is_newer_until_it_can_be_read() -> None:
    damaged = Answers(Unreadable("damaged"))
    with pytest.raises(Unreadable):
        await insist(VirtualClock(), damaged, WHILE_LEGIBLE)
    assert len(damaged.times) == 1
    newer = Answers(NewerSchema("of tomorrow"))
    assert await insist(VirtualClock(), newer, WHILE_LEGIBLE) == "done"


@virtually
async def test_an_impatient_call_is_made_once() -> None:
    call = Answers(Throttled("busy"))
    with pytest.raises(Throttled):
        await insist(VirtualClock(), call, AT_ONCE)
    assert len(call.times) == 1


def test_doubling_pauses_end_at_the_last() -> None:
    assert doubling(0.25, 1.5) == (0.25, 0.5, 1.0, 1.5)
