"""Queue slots, and who is accepted (R6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from fanfold.engine.errors import InfrastructureError, Throttled, Unanswered
from fanfold.engine.record.run import Run
from fanfold.service.api.submit import Submitter
from fanfold.service.effects import EffectRunner
from fanfold.service.sweeper import slot_repair, sweep
from tests.simulation.nodes import Port


@contextmanager
def returns_a_slot_again_when_unanswered() -> Iterator[None]:
    """An unanswered return is repeated like a refused one (R6)."""

    async def give_back(self: EffectRunner, run: Run, effect: Any, committed: float) -> None:
        for _ in range(3):
            try:
                return await self._services.slots.give_back(effect.class_name, effect.slot)
            except InfrastructureError:
                await self._services.clock.sleep(1)
        return None

    with patch.object(EffectRunner, "_return", give_back):
        yield


@contextmanager
def returns_a_slot_twice() -> Iterator[None]:
    """Every return is done twice (R6)."""
    follow = EffectRunner.follow

    def twice(self: EffectRunner, run: Run, effect: Any, **given: Any) -> None:
        follow(self, run, effect, **given)
        follow(self, run, effect, **given)

    with patch.object(EffectRunner, "follow", twice):
        yield


@contextmanager
def returns_the_slot_of_an_unanswered_send() -> Iterator[None]:
    """The API takes an unanswered send for a refused one (R6)."""
    conclude = Submitter.conclude

    async def hasty(self: Submitter, prepared: Any, error: Any) -> Any:
        return await conclude(self, prepared, Throttled("refused, surely") if isinstance(error, Unanswered) else error)

    with patch.object(Submitter, "conclude", hasty):
        yield


@contextmanager
def nobody_repairs_slots() -> Iterator[None]:
    """A leaked slot is lost for good (R6)."""

    async def nothing(services: Any, *, now: Any) -> int:
        return 0

    with patch.object(sweep, "repair", nothing):
        yield


@contextmanager
def repairs_slots_on_one_finding() -> Iterator[None]:
    """A place that is on its way back is taken for leaked (R6)."""
    with patch.object(slot_repair, "leaked", lambda first, found, *, again: found.surplus):
        yield


@contextmanager
def a_batch_mixes_up_its_answers() -> Iterator[None]:
    """Of runs submitted together each goes by what became of its neighbour's message (R6)."""
    send_many = Port.send_many

    async def shifted(self: Port, *args: Any) -> Any:
        told = await send_many(self, *args)
        return [*told[1:], *told[:1]]

    with patch.object(Port, "send_many", shifted):
        yield
