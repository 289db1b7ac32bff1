"""Counts the work on the server's side: rows by status, executions by the ledger. What HTTP said proves nothing."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from fanfold import Client
from loadtest.verdict import Check, equal

OPEN = ("queued", "running", "waiting", "paused")
PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of one tag: ids by status, and what the list says of each."""

    ids: Mapping[str, tuple[str, ...]]
    listed: Sequence[Mapping[str, Any]] = field(default=())

    @property
    def total(self) -> int:
        """All of them."""
        return sum(map(len, self.ids.values()))

    @property
    def open(self) -> int:
        """Those that have not ended."""
        return sum(self.count(status) for status in OPEN)

    def count(self, status: str) -> int:
        """Those in one status."""
        return len(self.ids.get(status, ()))

    def seconds(self, begin: str, end: str) -> list[float]:
        """From one time of each run to another (`created_at`, `started_at`, `finished_at`), where it has both."""
        return [
            (moment(row[end]) - moment(row[begin])).total_seconds() for row in self.listed if row[begin] and row[end]
        ]


def moment(text: str) -> datetime:
    """A time as the API tells it."""
    return datetime.fromisoformat(text)


def rows(client: Client, tag: str, *, status: str | None = None) -> Rows:
    """Every run that carries a tag (`key=value`), through the listing; `status` may name some, comma-separated."""
    listed: list[Mapping[str, Any]] = list(client.runs(tags=[tag], status=status, page=200))
    found: dict[str, list[str]] = {}
    for run in listed:
        found.setdefault(run["status"], []).append(run["id"])
    return Rows(ids={status: tuple(ids) for status, ids in found.items()}, listed=listed)


def tags_of(tag: str) -> dict[str, str]:
    """A tag (`key=value`) as a submission has it."""
    key, _, value = tag.partition("=")
    return {key: value}


def drained(client: Client, tag: str, *, within_seconds: float) -> Rows:
    """The rows of a tag once all have ended. Raises TimeoutError naming what is still open."""
    ends_at = time.monotonic() + within_seconds
    # Only what is active is asked for meanwhile: all rows, again and again, would be a load of its own.
    while next(client.runs(tags=[tag], status=",".join(OPEN), page=1), None) is not None:
        if time.monotonic() > ends_at:
            found = rows(client, tag)
            raise TimeoutError(f"{found.open} of {found.total} runs had not ended after {within_seconds:g} s")
        time.sleep(PAUSE_SECONDS)
    return rows(client, tag)


def all_there(name: str, found: Rows, accepted: int, *, ledger: Path | None = None, steps: int = 1) -> list[Check]:
    """The claims that every accepted run has a row and succeeded, that there are no others, and by the ledger (None:
    there is none) that each of its steps was executed once. `name` is what the claims begin with."""
    checks = [
        equal(f"{name}accepted runs that have a row and succeeded", found.count("succeeded"), accepted),
        equal(f"{name}rows in all", found.total, accepted),
    ]
    if ledger is not None:
        checks.append(equal(f"{name}executions of steps", executed(ledger, found), steps * accepted))
    return checks


def executions(ledger: Path) -> Counter[tuple[str, str]]:
    """How often each step of each run was really executed, by the ledger of `chaos.effect`."""
    return Counter((line["run"], line["step"]) for line in ledgered(ledger))


def executed(ledger: Path, found: Rows) -> int:
    """How many steps of the runs that succeeded were really executed, repetitions counted."""
    ids = set(found.ids.get("succeeded", ()))
    return sum(count for (run_id, _), count in executions(ledger).items() if run_id in ids)


def ledgered(ledger: Path) -> Iterator[Mapping[str, Any]]:
    """What `chaos.effect` wrote down of each execution: `{name, run, step, attempt, epoch}`."""
    if ledger.exists():
        for line in ledger.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)
