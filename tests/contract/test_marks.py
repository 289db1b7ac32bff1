"""What every store of marks promises."""

from __future__ import annotations

from tests.contract.backends import Backend


async def test_a_mark_is_what_was_put_last(backend: Backend) -> None:
    marks = backend.marks()
    await marks.put("cursor", {"at": ["acme", 1.5, None]})
    await marks.put("cursor", {"at": ["acme", 2.5, "ü"]})
    await marks.put("other", [])
    assert await marks.get("cursor") == {"at": ["acme", 2.5, "ü"]}
    assert await marks.get("other") == []


async def test_a_mark_that_was_never_put_is_none(backend: Backend) -> None:
    assert await backend.marks().get("cursor") is None
