"""What every store of the sweeper's state promises."""

from __future__ import annotations

from tests.contract.backends import Backend


async def test_a_mark_is_what_was_put_last(backend: Backend) -> None:
    state = backend.sweeper_state()
    await state.put("cursor", {"at": ["acme", 1.5, None]})
    await state.put("cursor", {"at": ["acme", 2.5, "ü"]})
    await state.put("other", [])
    assert await state.get("cursor") == {"at": ["acme", 2.5, "ü"]}
    assert await state.get("other") == []


async def test_a_mark_that_was_never_put_is_none(backend: Backend) -> None:
    assert await backend.sweeper_state().get("cursor") is None
