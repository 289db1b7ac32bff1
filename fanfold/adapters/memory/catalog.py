"""Workflow documents in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from fanfold.engine.payload import dump, parse
from fanfold.engine.ports import Listed, Registered


@dataclass(slots=True, kw_only=True)
class _Workflow:
    """A name's versions, and which of them is current."""

    versions: dict[str, tuple[bytes, datetime]] = field(default_factory=dict)
    current: str = ""


class MemoryCatalog:
    """A `Catalog`. Documents are kept as text, so that nobody can change a registered one."""

    def __init__(self) -> None:
        self._tenants: dict[str, dict[str, _Workflow]] = {}

    async def register(self, tenant: str, registered: Registered) -> tuple[Registered, bool]:
        """See `Catalog.register`."""
        it = self._tenants.setdefault(tenant, {}).setdefault(registered.name, _Workflow())
        new = registered.version not in it.versions
        if new:
            it.versions[registered.version] = (dump(registered.document), registered.created_at)
        it.current = registered.version
        return replace(registered, created_at=it.versions[registered.version][1]), new

    async def current(self, tenant: str, name: str) -> Registered | None:
        """See `Catalog.current`."""
        it = self._tenants.get(tenant, {}).get(name)
        return None if it is None else _registered(name, it, it.current)

    async def version(self, tenant: str, name: str, version: str) -> Registered | None:
        """See `Catalog.version`."""
        it = self._tenants.get(tenant, {}).get(name)
        return None if it is None or version not in it.versions else _registered(name, it, version)

    async def versions(self, tenant: str, name: str) -> Sequence[tuple[str, datetime]]:
        """See `Catalog.versions`."""
        it = self._tenants.get(tenant, {}).get(name, _Workflow())
        found = [(version, created_at) for version, (_, created_at) in it.versions.items()]
        return sorted(found, key=lambda pair: (pair[1], pair[0]), reverse=True)

    async def names(self, tenant: str, *, limit: int, after: str | None = None) -> Sequence[Listed]:
        """See `Catalog.names`."""
        known = self._tenants.get(tenant, {})
        chosen = sorted(name for name in known if after is None or name > after)[:limit]
        return [
            Listed(name=name, version=known[name].current, created_at=known[name].versions[known[name].current][1])
            for name in chosen
        ]


def _registered(name: str, it: _Workflow, version: str) -> Registered:
    document, created_at = it.versions[version]
    return Registered(name=name, version=version, document=parse(document), created_at=created_at)
