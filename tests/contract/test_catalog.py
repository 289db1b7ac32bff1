"""What every catalog of workflows promises."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fanfold.engine.ports import Catalog
from tests.contract.backends import Backend
from tests.support.builders import a_workflow
from tests.support.clock import START

LATER = START + timedelta(hours=1)
LATEST = START + timedelta(hours=2)


@pytest.fixture
def catalog(backend: Backend) -> Catalog:
    return backend.catalog()


async def test_a_registered_workflow_is_current_and_reads_back(catalog: Catalog) -> None:
    tiny = a_workflow(timeout="15m", output={"float": 0.5, "text": "ü"})
    assert await catalog.register("acme", tiny) == (tiny, True)
    assert await catalog.current("acme", "tiny") == tiny
    assert await catalog.version("acme", "tiny", tiny.version) == tiny


async def test_what_was_never_registered_is_none(catalog: Catalog) -> None:
    await catalog.register("acme", a_workflow())
    assert await catalog.current("acme", "other") is None
    assert await catalog.version("acme", "tiny", "sha256:" + "0" * 64) is None
    assert await catalog.version("acme", "other", a_workflow().version) is None
    assert await catalog.versions("acme", "other") == []


async def test_tenants_see_their_own(catalog: Catalog) -> None:
    tiny = a_workflow()
    await catalog.register("acme", tiny)
    assert await catalog.current("other", "tiny") is None
    assert await catalog.version("other", "tiny", tiny.version) is None
    assert await catalog.names("other", limit=10) == []


async def test_registering_the_same_again_changes_nothing(catalog: Catalog) -> None:
    first = a_workflow()
    await catalog.register("acme", first)
    assert await catalog.register("acme", a_workflow(created_at=LATER)) == (first, False)
    assert await catalog.current("acme", "tiny") == first
    assert await catalog.versions("acme", "tiny") == [(first.version, START)]


async def test_a_new_version_becomes_current_and_the_old_one_stays(catalog: Catalog) -> None:
    first, second = a_workflow(), a_workflow(created_at=LATER, timeout="1h")
    await catalog.register("acme", first)
    assert await catalog.register("acme", second) == (second, True)
    assert await catalog.current("acme", "tiny") == second
    assert await catalog.version("acme", "tiny", first.version) == first
    assert await catalog.versions("acme", "tiny") == [(second.version, LATER), (first.version, START)]


async def test_an_old_version_registered_again_is_current_and_keeps_its_date(catalog: Catalog) -> None:
    first, second = a_workflow(), a_workflow(created_at=LATER, timeout="1h")
    await catalog.register("acme", first)
    await catalog.register("acme", second)
    assert await catalog.register("acme", a_workflow(created_at=LATEST)) == (first, False)
    assert await catalog.current("acme", "tiny") == first
    assert await catalog.versions("acme", "tiny") == [(second.version, LATER), (first.version, START)]


async def test_names_are_listed_in_order_with_their_current_version(catalog: Catalog) -> None:
    for name in ("delta", "alpha", "charlie", "bravo"):
        await catalog.register("acme", a_workflow(name))
    newer = a_workflow("bravo", created_at=LATER, timeout="1h")
    await catalog.register("acme", newer)
    listed = await catalog.names("acme", limit=10)
    assert [it.name for it in listed] == ["alpha", "bravo", "charlie", "delta"]
    assert (listed[1].version, listed[1].created_at) == (newer.version, newer.created_at)


async def test_names_page_strictly_after_a_name(catalog: Catalog) -> None:
    for name in ("alpha", "bravo", "bravo-two", "charlie"):
        await catalog.register("acme", a_workflow(name))
    assert [it.name for it in await catalog.names("acme", limit=2)] == ["alpha", "bravo"]
    assert [it.name for it in await catalog.names("acme", limit=2, after="bravo")] == ["bravo-two", "charlie"]
    assert [it.name for it in await catalog.names("acme", limit=2, after="b")] == ["bravo", "bravo-two"]
    assert await catalog.names("acme", limit=2, after="charlie") == []


async def test_a_registered_document_does_not_follow_its_callers_changes(catalog: Catalog) -> None:
    tiny = a_workflow(tags=["a"])
    await catalog.register("acme", tiny)
    tiny.document["tags"].append("b")
    stored = await catalog.current("acme", "tiny")
    assert stored is not None
    assert stored.document["tags"] == ["a"]
