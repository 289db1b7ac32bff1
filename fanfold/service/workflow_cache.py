"""Workflows by version, in memory: a version never changes, so each is read and parsed once per process."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from fanfold.engine.errors import NotFound, Unreadable
from fanfold.engine.language.workflow import DEFAULT_CLASS, Workflow, load, version_of
from fanfold.engine.payload import Json, dump
from fanfold.engine.ports import Catalog, Registered
from fanfold.engine.record.run import Run
from fanfold.service.settings import ClassSettings

MAX_BYTES = 128_000_000
"""How much memory loaded workflows may take, estimated: two of the largest that can be registered, or thousands."""

LARGE_BYTES = 16_000
"""A document of more bytes of JSON is loaded aside: the loop would stand still for longer than a tenth of a second."""

Aside = Callable[[Callable[[], Workflow]], Awaitable[Workflow]]
"""Carries out what takes long beside the event loop."""


async def inline(work: Callable[[], Workflow]) -> Workflow:
    """At once, on the loop: where nobody else waits."""
    return work()


def weight(workflow: Workflow, document: Json) -> int:
    """Bytes of memory that a loaded workflow takes, estimated within a quarter by what takes most of them."""
    steps = workflow.steps.values()
    templates = [template for step in steps for template in step.templates]
    templates += [workflow.output] if workflow.output is not None else []
    expressions = sum(800 * template.expressions + 100 * template.nodes for template in templates)
    return 2_000 + 16 * len(dump(document)) + 300 * len(steps) + expressions


class WorkflowCache:
    """Loaded workflows, those used last, of at most `max_bytes` together, and always the last one.

    Several tasks that want one wait for one read. `aside` carries out the loading of large documents.
    """

    def __init__(
        self,
        catalog: Catalog,
        classes: Mapping[str, ClassSettings],
        *,
        max_bytes: int = MAX_BYTES,
        aside: Aside = inline,
    ) -> None:
        self._catalog = catalog
        self._classes = classes
        self._max_bytes = max_bytes
        self._aside = aside
        self._bytes = 0
        self._loaded: OrderedDict[tuple[str, str, str], tuple[Workflow, int]] = OrderedDict()
        self._reading: dict[tuple[str, str, str], asyncio.Lock] = {}

    async def of(self, run: Run) -> Workflow:
        """The version a run is pinned to. Raises `Unreadable` when it is not there, or this code can't load it."""
        try:
            return await self.get(run.tenant, run.workflow, run.workflow_version)
        except NotFound as error:
            raise Unreadable(f"run {run.id}: {error}") from error

    async def get(self, tenant: str, name: str, version: str) -> Workflow:
        """One version. Raises `NotFound` when the tenant has none such, `Unreadable` when this code can't load it."""
        key = (tenant, name, version)
        found = self._recall(key)
        if found is not None:
            return found
        lock = self._reading.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                found = self._recall(key)
                if found is not None:
                    return found
                registered = await self._catalog.version(tenant, name, version)
                if registered is None:
                    raise NotFound(f"workflow {name!r} has no version {version!r}")
                return await self._add(tenant, registered)
        finally:
            # Whoever still waits holds the lock itself; a late-comer finds the loaded workflow.
            self._reading.pop(key, None)

    async def current(self, tenant: str, name: str) -> Workflow:
        """The current version, by one strongly consistent read. Raises `NotFound`."""
        registered = await self._catalog.current(tenant, name)
        if registered is None:
            raise NotFound(f"there is no workflow {name!r}")
        key = (tenant, name, registered.version)
        lock = self._reading.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                return self._recall(key) or await self._add(tenant, registered)
        finally:
            self._reading.pop(key, None)

    async def _add(self, tenant: str, registered: Registered) -> Workflow:
        """Keep a version that was read. Raises `Unreadable` when this code can't load it."""
        try:
            bytes = len(dump(registered.document))
            load_it = partial(self._load, registered)
            workflow = load_it() if bytes <= LARGE_BYTES else await self._aside(load_it)
            taken = weight(workflow, registered.document)
        except Exception as error:  # a later release's document, or a damaged one: whatever it does to the loader
            what = f"version {registered.version} of workflow {registered.name!r} can't be loaded"
            raise Unreadable(f"{what}: {type(error).__name__}: {str(error)[:200]}") from error
        self._keep((tenant, registered.name, registered.version), workflow, taken)
        return workflow

    def _keep(self, key: tuple[str, str, str], workflow: Workflow, bytes: int) -> None:
        _, before = self._loaded.pop(key, (workflow, 0))
        self._loaded[key] = (workflow, bytes)
        self._bytes += bytes - before
        while self._bytes > self._max_bytes and len(self._loaded) > 1:
            _, (_, gone) = self._loaded.popitem(last=False)
            self._bytes -= gone

    def _load(self, registered: Registered) -> Workflow:
        if version_of(registered.document) != registered.version:
            raise ValueError("the document is not the one that has this hash")
        class_name = registered.document.get("class", DEFAULT_CLASS)
        # A class that is no longer deployed has no workers; its workflows can still be looked at.
        limits = self._classes.get(class_name, ClassSettings())
        return load(registered.document, version=registered.version, max_step_seconds=limits.max_step_seconds)

    def _recall(self, key: tuple[str, str, str]) -> Workflow | None:
        found = self._loaded.get(key)
        if found is None:
            return None
        self._loaded.move_to_end(key)
        return found[0]
