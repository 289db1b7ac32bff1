"""What a document's compilation may cost: bounded when it is registered, aside of the loop, bounded in memory."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from fanfold.adapters.memory import MemoryCatalog
from fanfold.engine.errors import InvalidDocument
from fanfold.engine.language import expressions as query
from fanfold.engine.language import step_checks, templates
from fanfold.engine.language.document_check import check
from fanfold.engine.language.workflow import Workflow, load, version_of
from fanfold.engine.ports import Registered
from fanfold.service.settings import ClassSettings
from fanfold.service.workflow_cache import LARGE_BYTES, WorkflowCache, weight
from tests.support.clock import START

CLASSES = {"model": ClassSettings()}


def a_document(count: int, source: Any = "${input.a}", name: str = "flow") -> dict[str, Any]:
    return {"name": name, "steps": {f"s{n}": {"task": "core.echo", "input": source} for n in range(count)}}


def checked(document: Any) -> Workflow:
    return check(document, name=None, tasks={"core.echo"}, classes={"model": 840.0})


def problems(document: Any) -> list[str]:
    with pytest.raises(InvalidDocument) as refused:
        checked(document)
    return [f"{problem.pointer} {problem.detail}" for problem in refused.value.problems]


def test_a_document_of_too_many_expressions_is_refused_before_any_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "compile_expression", None)
    said = problems({"name": "flow", "steps": {"a": {"task": "core.echo", "input": ["${input}"] * 20_001}}})
    assert said == [" the document has 20,001 expressions; the limit is 20,000"]


def test_a_document_of_long_expressions_is_refused_once_they_have_too_many_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []

    def counted(text: str) -> Any:
        compiled.append(text)
        return query.compile_expression(text)

    monkeypatch.setattr(templates, "compile_expression", counted)
    monkeypatch.setattr(step_checks, "MAX_NODES", 100)
    assert problems(a_document(1, ["${input.a.b.c}"] * 1_000)) == [
        " the document's expressions have more than 100 parts together, the limit"
    ]
    assert len(compiled) < 30
    compiled.clear()
    assert len(problems(a_document(1_000, "${input.a.b.c}"))) == 1
    assert len(compiled) < 30


def test_a_document_registered_when_there_was_no_bound_can_still_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_checks, "MAX_NODES", 1)
    document = a_document(5)
    assert len(load(document, version=version_of(document), max_step_seconds=60.0).steps) == 5


@pytest.mark.parametrize(
    "document",
    [
        a_document(1, [{"x": f"${{input.a[?b == `{n}`].c | [0]}}", "y": f"${{input.z{n}}}"} for n in range(2_000)]),
        a_document(3_000, {}),
        a_document(1, [{"k": n, "v": "x"} for n in range(20_000)]),
        a_document(1, [f"${{input.a{n}}}" for n in range(5_000)]),
    ],
)
def test_the_estimate_of_a_workflows_memory_is_near_what_it_takes(document: dict[str, Any]) -> None:
    text, version = json.dumps(document), version_of(document)
    query.compile_expression.cache_clear()
    gc.collect()
    tracemalloc.start()
    try:
        workflow = load(json.loads(text), version=version, max_step_seconds=60.0)
        query.compile_expression.cache_clear()
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / 2 < weight(workflow, document) < taken * 2


class Catalog:
    """Registered documents, and a cache over them that tells what it reads and what it loads aside."""

    def __init__(self, *documents: dict[str, Any], max_bytes: int = 1_000_000) -> None:
        self.inner = MemoryCatalog()
        self.documents = documents
        self.read: list[str] = []
        self.aside: list[Workflow] = []
        self.cache = WorkflowCache(self, CLASSES, max_bytes=max_bytes, aside=self._aside)  # type: ignore[arg-type]

    async def __aenter__(self) -> Catalog:
        for document in self.documents:
            registered = Registered(
                name=document["name"], version=version_of(document), document=document, created_at=START
            )
            await self.inner.register("acme", registered)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close."""

    async def version(self, *key: str) -> Registered | None:
        self.read.append(key[1])
        return await self.inner.version(*key)

    async def current(self, *key: str) -> Registered | None:
        self.read.append(key[1])
        return await self.inner.current(*key)

    async def get(self, document: dict[str, Any]) -> Workflow:
        return await self.cache.get("acme", document["name"], version_of(document))

    async def _aside(self, work: Callable[[], Workflow]) -> Workflow:
        await asyncio.sleep(0)
        workflow = work()
        self.aside.append(workflow)
        return workflow


async def test_workflows_in_memory_are_bounded_by_what_they_take_and_not_by_their_number() -> None:
    small = [a_document(1, name=f"small{n}") for n in range(300)]
    large = [a_document(60, name=f"large{n}") for n in range(3)]
    async with Catalog(*small, *large, max_bytes=1_500_000) as catalog:
        for document in (*small, *small):
            await catalog.get(document)
        assert len(catalog.read) == 300
        for document in (*large, *large):
            await catalog.get(document)
        assert len(catalog.read) == 303
        await catalog.get(small[0])
        assert len(catalog.read) == 304


async def test_a_workflow_larger_than_the_whole_cache_is_kept_until_the_next_one() -> None:
    large, other = a_document(60), a_document(1, name="other")
    async with Catalog(large, other, max_bytes=10_000) as catalog:
        for _ in range(3):
            await catalog.get(large)
        assert catalog.read == ["flow"]
        await catalog.get(other)
        await catalog.get(large)
        assert catalog.read == ["flow", "other", "flow"]


async def test_large_documents_are_loaded_aside_and_once_for_all_who_wait() -> None:
    large, small = a_document(400), a_document(3, name="small")
    assert len(json.dumps(large)) > LARGE_BYTES
    async with Catalog(large, small) as catalog:
        found = await asyncio.gather(
            *(catalog.get(large) for _ in range(3)), *(catalog.cache.current("acme", "flow") for _ in range(3))
        )
        await catalog.get(small)
        assert len({id(workflow) for workflow in found}) == 1
        assert [workflow.name for workflow in catalog.aside] == ["flow"]
