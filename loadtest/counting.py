"""Counts the work on the server's side: rows by status, executions by the ledger. What HTTP said proves nothing."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fanfold import Client

OPEN = frozenset({"queued", "running", "suspended", "paused"})
PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of one tag: ids by status."""

    ids: Mapping[str, tuple[str, ...]]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(map(len, self.ids.values()))

    @property
    def open(self) -> int:
        """Those that have not ended."""
        return sum(len(ids) for status, ids in self.ids.items() if status in OPEN)

    def count(self, status: str) -> int:
        """Those in one status."""
        return len(self.ids.get(status, ()))


def rows(client: Client, tag: str) -> Rows:
    """Every run that carries a tag (`key=value`), through the listing."""
    found: dict[str, list[str]] = {}
    for run in client.runs(tags=[tag], page=200):
        found.setdefault(run["status"], []).append(run["id"])
    return Rows(ids={status: tuple(ids) for status, ids in found.items()})


def drained(client: Client, tag: str, *, within_seconds: float) -> Rows:
    """The rows of a tag once all have ended. Raises TimeoutError naming what is still open."""
    ends_at = time.monotonic() + within_seconds
    while (found := rows(client, tag)).open:
        if time.monotonic() > ends_at:
            raise TimeoutError(f"{found.open} of {found.total} runs had not ended after {within_seconds:g} s")
        time.sleep(PAUSE_SECONDS)
    return found


def executions(ledger: Path) -> Counter[tuple[str, str]]:
    """How often each step of each run was really executed, by the ledger of `chaos.effect`."""
    return Counter((line["run"], line["step"]) for line in _lines(ledger))


def _lines(ledger: Path) -> Iterator[Mapping[str, str]]:
    if ledger.exists():
        for line in ledger.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)
