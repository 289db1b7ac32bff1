"""Distributed maps: what their batches gave, and the executions that work on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fanfold.engine.language.maps import MapRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class MapKey:
    """The records of one map step in one life of a run (all its tries)."""

    tenant: str
    run_id: str
    submission: str
    step: str


class MapRecords(Protocol):
    """What the batches of maps left behind, one record for each; a record never changes."""

    async def put(self, key: MapKey, record: MapRecord, *, expires_at: datetime) -> None:
        """Store a batch's record, unless there is one of that try and first index: then nothing changes.

        Raises `LimitExceeded` when it is too big for an item.
        """

    async def has(self, key: MapKey, *, try_number: int, first: int) -> bool:
        """Whether there is a record of that try and first index, strongly consistent."""

    async def read(self, key: MapKey) -> Sequence[MapRecord]:
        """All records of the map, strongly consistent, by try and first index; damaged ones say so.

        Raises `NewerSchema` for one that newer code wrote.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """An execution of a distributed map: what it is called and what it needs to know; the same for whoever starts it.

    `batches` is the key of the list of batches, `batches_at_once` how many of them are worked on at a time.
    """

    name: str
    class_name: str
    tenant: str
    run_id: str
    submission: str
    step: str
    try_number: int
    batches: str
    batches_at_once: int


class FanOut(Protocol):
    """Works on the batches of distributed maps, each at least once, and rings at an execution's end."""

    async def start(self, execution: Execution) -> bool:
        """Start it, once per name. True: it goes on. False: there was one of that name; `going` says the rest."""

    async def going(self, execution: Execution) -> bool:
        """Whether it goes on."""

    async def throttled(self, execution: Execution) -> bool:
        """Whether one that has ended could not begin some of its batches: nobody had room for them.

        False where that is not known, as of one that was broken off.
        """

    async def stop(self, execution: Execution) -> None:
        """End it, if it goes on; batches already begun may be carried through."""
