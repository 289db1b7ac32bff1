"""Big payloads as objects in S3."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from fanfold.adapters.aws.calls import Call, Client, Refused
from fanfold.engine.errors import LimitExceeded, PayloadLost
from fanfold.engine.payload import BlobRef, Json, parse

MAX_PRESIGN_SECONDS: Final = 604_800
"""A presigned URL lives at most 7 days (Signature Version 4)."""


class S3Blobs:
    """A `Blobs` in one bucket. `call` carries out the calls (the `Aws` object).

    A reference carries the hash of what was stored, and S3 checks it on arrival; what comes back
    with another hash is not handed out.
    """

    def __init__(self, call: Call, bucket: str) -> None:
        self._call = call
        self._bucket = bucket

    async def put(self, key: str, data: bytes) -> BlobRef:
        """See `Blobs.put`."""
        digest = hashlib.sha256(data)
        await self._call(
            Client.S3,
            "put_object",
            Bucket=self._bucket,
            Key=key,
            Body=data,
            ContentType="application/json",
            ChecksumSHA256=base64.b64encode(digest.digest()).decode("ascii"),
        )
        return BlobRef(key=key, bytes=len(data), sha256=digest.hexdigest())

    async def get(self, ref: BlobRef) -> Json:
        """See `Blobs.get`."""
        return parse(await self.raw(ref))

    async def raw(self, ref: BlobRef) -> bytes:
        """See `Blobs.raw`."""
        try:
            response = await self._call(Client.S3, "get_object", Bucket=self._bucket, Key=ref.key)
        except Refused as refusal:
            if refusal.says("NoSuchKey"):
                raise PayloadLost(f"there is no object {ref.key}") from refusal
            raise
        data: bytes = response["Body"]
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise PayloadLost(f"the object {ref.key} is not the one that was stored")
        return data

    async def presign(self, ref: BlobRef, *, seconds: int) -> str:
        """See `Blobs.presign`. No call: the URL is signed here."""
        if not 1 <= seconds <= MAX_PRESIGN_SECONDS:
            raise LimitExceeded("s3.presign_seconds", f"{seconds} is not within 1–{MAX_PRESIGN_SECONDS}")
        url = await self._call(
            Client.S3,
            "generate_presigned_url",
            ClientMethod="get_object",
            Params={"Bucket": self._bucket, "Key": ref.key},
            ExpiresIn=seconds,
        )
        return str(url)
