"""Tickets: links with which one run can be watched for an hour without a token.

A browser's EventSource sends no headers, so its permission must be in the address. A ticket is
an HMAC over tenant, run and expiry, with a key that all processes of a deployment share.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fanfold.engine.ports import Clock, Ids, RunKey, Secrets
from fanfold.service.api.problems import unauthorized

LIFETIME: Final = timedelta(hours=1)
SECRET: Final = "stream"
_TAG_BYTES: Final = 16
"""128 bits of the HMAC: not guessable, and the link stays short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tickets:
    """Creates and opens tickets with one key at one time."""

    key: bytes
    now: datetime

    def ticket(self, run: RunKey) -> str:
        """A ticket for a run, of URL-safe characters, good for an hour."""
        expiry = int((self.now + LIFETIME).timestamp())
        facts = json.dumps([expiry, run.tenant, run.run_id], separators=(",", ":")).encode("ascii")
        return base64.urlsafe_b64encode(self._tag(facts) + facts).decode("ascii").rstrip("=")

    def open(self, ticket: str) -> RunKey:
        """The run of a ticket; refused with 401 if the ticket is not ours or has expired."""
        try:
            data = base64.b64decode(ticket + "=" * (-len(ticket) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise unauthorized(_BROKEN) from error
        tag, facts = data[:_TAG_BYTES], data[_TAG_BYTES:]
        if not hmac.compare_digest(tag, self._tag(facts)):
            raise unauthorized(_BROKEN)
        expiry, tenant, run_id = json.loads(facts)  # the signature is valid, so these are ours
        if self.now.timestamp() >= expiry:
            raise unauthorized("the ticket's hour is over; `links.stream` of the run has a new one")
        return RunKey(tenant=tenant, run_id=run_id)

    def _tag(self, facts: bytes) -> bytes:
        return hmac.digest(self.key, facts, hashlib.sha256)[:_TAG_BYTES]


_BROKEN: Final = "this is no ticket of ours; `links.stream` of the run has one"


class TicketOffice:
    """The tickets of a process: its first call reads the key, which it keeps."""

    def __init__(self, secrets: Secrets, clock: Clock, ids: Ids) -> None:
        self._secrets = secrets
        self._clock = clock
        self._ids = ids
        self._key: bytes | None = None
        self._reading = asyncio.Lock()

    async def open(self) -> Tickets:
        """Tickets as of now. Raises an `InfrastructureError` while the key can't be read."""
        if self._key is None:
            async with self._reading:
                if self._key is None:
                    drawn = self._ids.token() + self._ids.token() + self._ids.token()
                    self._key = (await self._secrets.shared(SECRET, drawn=drawn)).encode("ascii")
        return Tickets(key=self._key, now=self._clock.now())
