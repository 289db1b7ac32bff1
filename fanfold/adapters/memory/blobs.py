"""Payloads in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fanfold.engine.errors import PayloadLost
from fanfold.engine.payload import BlobRef, Json, parse


class MemoryBlobs:
    """A `Blobs`. Like the bucket it would let a key be used twice; the reference's hash tells."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    @property
    def keys(self) -> Sequence[str]:
        """The key of every object: for tests to look at."""
        return list(self._objects)

    async def put(self, key: str, data: bytes) -> BlobRef:
        """See `Blobs.put`."""
        self._objects[key] = bytes(data)
        return BlobRef(key=key, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())

    async def get(self, ref: BlobRef) -> Json:
        """See `Blobs.get`."""
        return parse(await self.raw(ref))

    async def raw(self, ref: BlobRef) -> bytes:
        """See `Blobs.raw`."""
        data = self._objects.get(ref.key)
        if data is None:
            raise PayloadLost(f"there is no object {ref.key}")
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise PayloadLost(f"the object {ref.key} is not the one that was stored")
        return data

    def read(self, key: str) -> bytes:
        """What lies under a key, as Step Functions reads it: without its hash. Raises KeyError."""
        return self._objects[key]

    async def presign(self, ref: BlobRef, *, seconds: int) -> str:
        """See `Blobs.presign`; this URL can only be looked at."""
        return f"memory:///{ref.key}?seconds={seconds}"
