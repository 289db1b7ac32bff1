"""What brings a run back when its messages are lost (R2, R4, R13, R14)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from fanfold.engine.ports import RunKey
from fanfold.engine.record.messages import Received
from fanfold.engine.record.run import Run
from fanfold.service.effects import EffectRunner
from fanfold.service.sweeper.sweep import _Pass
from fanfold.service.worker import dispositions, message_handler
from fanfold.service.worker.ownership import OwnershipLost
from tests.simulation import fleet


@contextmanager
def rings_for_nobody() -> Iterator[None]:
    """Neither the shell nor the sweeper rings for a waiting run (R4)."""

    async def nothing(*args: Any, **given: Any) -> None:
        """Not a sound."""

    with patch.object(EffectRunner, "_send_wake", nothing), patch.object(_Pass, "wake_due_runs", nothing):
        yield


@contextmanager
def dead_leases_are_nobodys_business() -> Iterator[None]:
    """The sweeper looks after no active run (R14)."""

    async def nothing(self: _Pass, run: Run, last_turn: Any) -> None:
        """Looks away."""

    with patch.object(_Pass, "_check", nothing):
        yield


@contextmanager
def an_envelope_without_a_row_is_dropped() -> Iterator[None]:
    """Only the API creates rows (R2)."""
    hold = message_handler.MessageHandler._hold

    async def only_rows(self: Any, base: Run, condition: Any, **given: Any) -> Any:
        if base.version == 1:
            row = await self._services.runs.get(RunKey(tenant=base.tenant, run_id=base.id), now=self._now())
            if row is None:
                return OwnershipLost(run_id=base.id, record=None, held=True)
        return await hold(self, base, condition, **given)

    after = message_handler.MessageHandler._after

    def drop(self: Any, outcome: Any) -> Any:
        return dispositions.Ack() if isinstance(outcome, OwnershipLost) else after(self, outcome)

    with (
        patch.object(message_handler.MessageHandler, "_hold", only_rows),
        patch.object(message_handler.MessageHandler, "_after", drop),
    ):
        yield


@contextmanager
def dead_letters_are_dropped() -> Iterator[None]:
    """And the sweeper sends no envelope again: an envelope that died is lost (R13, R14)."""

    async def drop(services: Any, messages: Sequence[Received], *, now: Any) -> Sequence[str]:
        return []

    with patch.object(fleet, "revive", drop), patch.object(_Pass, "_envelope_lost", lambda *_: False):
        yield
