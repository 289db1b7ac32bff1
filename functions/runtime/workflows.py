"""Workflows by version, in memory: a version never changes, so each is read and parsed once per process."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping

from functions.engine.errors import NotFound, Unreadable
from functions.engine.ports import Catalog, Registered
from functions.engine.run import Run
from functions.engine.workflow import DEFAULT_CLASS, Workflow, load, version_of
from functions.runtime.settings import ClassSettings


class WorkflowCache:
    """At most `size` loaded workflows, those used last; several tasks that want one wait for one read."""

    def __init__(self, catalog: Catalog, classes: Mapping[str, ClassSettings], *, size: int = 256) -> None:
        self._catalog = catalog
        self._classes = classes
        self._size = size
        self._loaded: OrderedDict[tuple[str, str, str], Workflow] = OrderedDict()
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
                return self.add(tenant, registered)
        finally:
            # Whoever still waits holds the lock itself; a late-comer finds the loaded workflow.
            self._reading.pop(key, None)

    async def current(self, tenant: str, name: str) -> Workflow:
        """The current version, by one strongly consistent read. Raises `NotFound`."""
        registered = await self._catalog.current(tenant, name)
        if registered is None:
            raise NotFound(f"there is no workflow {name!r}")
        return self._recall((tenant, name, registered.version)) or self.add(tenant, registered)

    def add(self, tenant: str, registered: Registered) -> Workflow:
        """Keep a version that was read anyway. Raises `Unreadable` when this code can't load it."""
        try:
            workflow = self._load(registered)
        except Exception as error:  # a later release's document, or a damaged one: whatever it does to the loader
            what = f"version {registered.version} of workflow {registered.name!r} can't be loaded"
            raise Unreadable(f"{what}: {type(error).__name__}: {str(error)[:200]}") from error
        self._loaded[(tenant, registered.name, registered.version)] = workflow
        if len(self._loaded) > self._size:
            self._loaded.popitem(last=False)
        return workflow

    def _load(self, registered: Registered) -> Workflow:
        if version_of(registered.document) != registered.version:
            raise ValueError("the document is not the one that has this hash")
        class_name = registered.document.get("class", DEFAULT_CLASS)
        # A class that is no longer deployed has no workers; its workflows can still be looked at.
        limits = self._classes.get(class_name, ClassSettings())
        return load(registered.document, version=registered.version, max_step_seconds=limits.max_step_seconds)

    def _recall(self, key: tuple[str, str, str]) -> Workflow | None:
        found = self._loaded.get(key)
        if found is not None:
            self._loaded.move_to_end(key)
        return found
