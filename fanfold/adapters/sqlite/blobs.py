"""Payloads in a SQLite file, and URLs that read one for a while."""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote, urlencode

from fanfold.adapters.packing import to_ms
from fanfold.adapters.sqlite.database import Database
from fanfold.engine.errors import PayloadLost
from fanfold.engine.payload import BlobRef, Json, parse
from fanfold.engine.ports import Clock, Ids, Secrets

PATH: Final = "/_payloads/"
"""Where the server answers presigned URLs."""

_SECRET: Final = "payload-urls"
"""The name of the secret that signs them."""


class SqliteBlobs:
    """A `Blobs`. `base_url` is the server's own; a secret of the deployment signs its URLs."""

    def __init__(self, database: Database, clock: Clock, *, base_url: str, secrets: Secrets, ids: Ids) -> None:
        self._database = database
        self._clock = clock
        self._base_url = base_url.rstrip("/")
        self._secrets = secrets
        self._ids = ids
        self._key: bytes | None = None

    async def put(self, key: str, data: bytes) -> BlobRef:
        """See `Blobs.put`."""
        stored_at = to_ms(self._clock.now())

        def store(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO payloads VALUES (?, ?, ?)", (key, stored_at, bytes(data)))

        await self._database.write(store)
        return BlobRef(key=key, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())

    async def get(self, ref: BlobRef) -> Json:
        """See `Blobs.get`."""
        return parse(await self.raw(ref))

    async def raw(self, ref: BlobRef) -> bytes:
        """See `Blobs.raw`."""
        data = await self.read(ref.key)
        if data is None:
            raise PayloadLost(f"there is no object {ref.key}")
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise PayloadLost(f"the object {ref.key} is not the one that was stored")
        return data

    async def read(self, key: str) -> bytes | None:
        """What lies under a key; None where nothing does."""

        def find(connection: sqlite3.Connection) -> bytes | None:
            row = connection.execute("SELECT data FROM payloads WHERE key = ?", (key,)).fetchone()
            return None if row is None else bytes(row[0])

        return await self._database.read(find)

    async def presign(self, ref: BlobRef, *, seconds: int) -> str:
        """See `Blobs.presign`."""
        until = to_ms(self._clock.now()) // 1000 + seconds
        query = urlencode({"until": until, "signature": await self._signature(ref.key, str(until))})
        return f"{self._base_url}{PATH}{quote(ref.key)}?{query}"

    async def presigned(self, key: str, *, until: str, signature: str) -> bytes | None:
        """What a presigned URL reads; None where it was not signed here, or is over."""
        if not hmac.compare_digest(signature.encode(), (await self._signature(key, until)).encode()):
            return None
        return None if int(until) * 1000 < to_ms(self._clock.now()) else await self.read(key)

    async def expire(self, now: datetime, *, kept: timedelta, limit: int = 200) -> int:
        """Delete up to `limit` payloads that were stored longer ago; how many."""

        def delete(connection: sqlite3.Connection) -> int:
            old = "SELECT rowid FROM payloads WHERE stored_at < ? LIMIT ?"
            return connection.execute(
                f"DELETE FROM payloads WHERE rowid IN ({old})", (to_ms(now - kept), limit)
            ).rowcount

        return await self._database.write(delete)

    async def _signature(self, key: str, until: str) -> str:
        if self._key is None:
            drawn = "".join(self._ids.token() for _ in range(3))
            self._key = (await self._secrets.shared(_SECRET, drawn=drawn)).encode()
        return hmac.new(self._key, f"{until}\n{key}".encode(), hashlib.sha256).hexdigest()
