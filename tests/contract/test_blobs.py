"""What every store of payloads promises."""

from __future__ import annotations

import hashlib

import pytest

from fanfold.engine.errors import PayloadLost
from fanfold.engine.payload import BlobRef, dump
from fanfold.engine.ports import Blobs
from tests.contract.backends import Backend

KEY = "acme/r1/s1/in.json"


@pytest.fixture
def blobs(backend: Backend) -> Blobs:
    return backend.blobs()


@pytest.mark.parametrize(
    "value",
    [None, 0, "text", [1.5, {"a": "ü\u0000\U0001f600"}], {"x": ["y" * 2_000_000]}],
    ids=["null", "number", "text", "nested", "2 MB"],
)
async def test_a_payload_reads_back(blobs: Blobs, value: object) -> None:
    data = dump(value)
    ref = await blobs.put(KEY, data)
    assert ref == BlobRef(key=KEY, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    assert await blobs.get(ref) == value


async def test_putting_the_same_again_is_fine(blobs: Blobs) -> None:
    first = await blobs.put(KEY, b'{"a":1}')
    assert await blobs.put(KEY, b'{"a":1}') == first
    assert await blobs.get(first) == {"a": 1}


async def test_a_payload_that_is_not_there_is_not_found(blobs: Blobs) -> None:
    with pytest.raises(PayloadLost):
        await blobs.get(BlobRef(key="acme/none", bytes=2, sha256="00" * 32))


async def test_a_payload_that_is_not_what_was_stored_is_not_handed_out(blobs: Blobs) -> None:
    ref = await blobs.put(KEY, b'{"a":1}')
    await blobs.put(KEY, b'{"a":2}')
    with pytest.raises(PayloadLost):
        await blobs.get(ref)


async def test_a_url_reads_the_object(backend: Backend, blobs: Blobs) -> None:
    ref = await blobs.put(KEY, b'{"a":1}')
    url = await blobs.presign(ref, seconds=300)
    assert KEY in url
    if (fetched := await backend.fetch(url)) is not None:
        assert fetched == b'{"a":1}'
