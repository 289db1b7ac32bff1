"""A folder for each measurement: raw rows, environment, figures and verdict, readable without this code."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any

from loadtest.verdict import Check, holds

RESULTS = Path(__file__).resolve().parent / "results"
RAW = "raw.jsonl.gz"
SUMMARY = "summary.json"


class Recorder:
    """Writes one measurement's folder: `row` as things happen, `finish` once, at the end.

    As a context manager it keeps an error that ends the measurement as its result, which has not passed; what is
    interrupted is no measurement, and its folder goes. Refuses a folder that is there already (FileExistsError):
    a result is never written over.
    """

    def __init__(self, folder: Path, *, scenario: str, environment: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._scenario = scenario
        self._environment = dict(environment)
        # No time in the header: the same rows are the same bytes.
        self._raw = TextIOWrapper(gzip.GzipFile(folder / RAW, "wb", mtime=0), encoding="utf-8")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()
        if isinstance(error, Exception):
            self._write(passed=False, error=f"{type(error).__name__}: {error}")
        elif error is not None:
            shutil.rmtree(self.folder)

    def row(self, **facts: Any) -> None:
        """One raw observation."""
        self._raw.write(json.dumps(facts, separators=(",", ":")) + "\n")

    def note(self, **facts: Any) -> None:
        """Add to the environment what was known only later."""
        self._environment |= facts

    def finish(self, *, figures: Mapping[str, Any], checks: Sequence[Check]) -> bool:
        """Write the summary; says whether every claim holds."""
        passed = holds(checks)
        self._write(
            passed=passed,
            figures={name: _plain(value) for name, value in figures.items()},
            checks=[asdict(check) for check in checks],
        )
        return passed

    def _write(
        self,
        *,
        passed: bool,
        error: str | None = None,
        figures: Mapping[str, Any] | None = None,
        checks: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        summary = {
            "scenario": self._scenario,
            "passed": passed,
            "error": error,
            "figures": figures or {},
            "checks": checks,
            "environment": self._environment,
        }
        (self.folder / SUMMARY).write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read(folder: Path) -> dict[str, Any]:
    """A measurement's summary. Raises FileNotFoundError when the folder holds none."""
    summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return summary


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """A measurement's raw observations, in the order they were made."""
    with gzip.open(folder / RAW, "rt", encoding="utf-8") as raw:
        for line in raw:
            yield json.loads(line)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(part) for part in value]
    return value
