"""A recording: what was stored and under way at one moment, as files that only grow older."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A run of a recording: its journal then, in words, and how it has to end."""

    run_id: str
    journal: Sequence[str]
    status: str
    output: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One state of the world. `resume_at` is when it goes on; `items` are DynamoDB's JSON, with binary in hex.

    `messages` are bodies by queue role, `orders` batches of maps nobody has worked on, `moves` what an operator then
    does: `["resume"]`, `["signal", name, payload]`.
    """

    about: str
    recorded_by: str
    resume_at: str
    items: Sequence[Mapping[str, Mapping[str, Any]]]
    objects: Mapping[str, str] = field(default_factory=dict)
    messages: Sequence[Sequence[str]] = ()
    orders: Sequence[Mapping[str, Any]] = ()
    moves: Sequence[Sequence[Any]] = ()
    runs: Sequence[Mapping[str, Any]] = ()

    def expected(self) -> list[Expected]:
        """What has to become of each run."""
        return [Expected(**run) for run in self.runs]


def write(folder: Path, name: str, recording: Recording) -> None:
    """Write a recording. Raises FileExistsError: what old code wrote can't be recorded again by newer code."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.json").open("x", encoding="utf-8") as file:
        file.write(json.dumps(asdict(recording), indent=1, ensure_ascii=True) + "\n")


def read(path: Path) -> Recording:
    """Read a recording."""
    return Recording(**json.loads(path.read_text(encoding="utf-8")))


def to_hex(item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """An item with its binary attributes in hex."""
    return {
        name: {kind: bytes(value).hex() if kind == "B" else value for kind, value in typed.items()}
        for name, typed in item.items()
    }


def from_hex(item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What `to_hex` made."""
    return {
        name: {kind: bytes.fromhex(value) if kind == "B" else value for kind, value in typed.items()}
        for name, typed in item.items()
    }
