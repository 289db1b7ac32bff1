"""What is kept beside runs: payloads, workflows, the sweeper's state, the deployment's secrets, seats of callers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fanfold.engine.payload import BlobRef, Json


class Blobs(Protocol):
    """Immutable JSON payloads too big for a record."""

    async def put(self, key: str, data: bytes) -> BlobRef:
        """Store JSON bytes under a key that is never used for anything else."""

    async def get(self, ref: BlobRef) -> Json:
        """The JSON a reference stands for; raises `PayloadLost` when it is gone, or is not what was stored."""

    async def raw(self, ref: BlobRef) -> bytes:
        """The JSON as it was stored, in ASCII, for whoever only hands it on; raises as `get` does."""

    async def presign(self, ref: BlobRef, *, seconds: int) -> str:
        """A URL that reads the object for that long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """One version of a workflow: `version` is `sha256:` + hash of `document`'s canonical form."""

    name: str
    version: str
    document: Json
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A workflow in a list: its current version, and when that was first registered."""

    name: str
    version: str
    created_at: datetime


class Catalog(Protocol):
    """Workflow documents: immutable versions, and which of them is current."""

    async def register(self, tenant: str, registered: Registered) -> tuple[Registered, bool]:
        """Make this the current version; returns it as stored (an old one keeps its date), and whether it is new."""

    async def current(self, tenant: str, name: str) -> Registered | None:
        """The current version, strongly consistent, in one read."""

    async def version(self, tenant: str, name: str, version: str) -> Registered | None:
        """One version, in one read."""

    async def versions(self, tenant: str, name: str) -> Sequence[tuple[str, datetime]]:
        """All versions and when they were first registered, newest first."""

    async def names(self, tenant: str, *, limit: int, after: str | None = None) -> Sequence[Listed]:
        """The current version of each workflow, by name, strictly after a name; no document is read or parsed."""


class SweeperState(Protocol):
    """Where a recurring job left off, by name: hints. The last writer wins, and losing one costs only work."""

    async def get(self, name: str) -> Json:
        """What was put last, strongly consistent; None when nothing was."""

    async def put(self, name: str, value: Json) -> None:
        """Remember a JSON value of at most a few KB."""


class Secrets(Protocol):
    """Secrets of the deployment, by name: drawn by whoever needs one first, the same for everybody from then on."""

    async def shared(self, name: str, *, drawn: str) -> str:
        """The secret of that name, strongly consistent; `drawn` becomes it if there is none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The right of one call to hold its answer back; `name` is drawn for it and for no other."""

    number: int
    name: str


class Seats(Protocol):
    """What bounds how many calls hold their answer back, in all processes together.

    A seat whose process dies is free again at its end, so none is lost.
    """

    async def take(self, name: str, *, now: datetime, until: datetime) -> Seat | None:
        """A seat until then; None where none was found free. `Unanswered` leaves one taken until then at most."""

    async def leave(self, seat: Seat) -> None:
        """Give it back, if it is still this call's."""
