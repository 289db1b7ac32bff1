"""The page on results, two results side by side, and the curves: all from what results hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loadtest.__main__ import app
from loadtest.curves import curves
from loadtest.report import PAGE, compared, write
from loadtest.results import Recorder
from loadtest.verdict import at_most, equal, shown


def a_result(folder: Path, *, scenario: str = "open", rate: float = 40.0, rows: int = 3, **figures: Any) -> Path:
    """A result with one claim that holds, one that holds up to 40, and requests."""
    with Recorder(folder, scenario=scenario, environment={"cores": 2, "target": "memory", "rate": rate}) as recorder:
        for number in range(rows):
            recorder.row(name="submit", phase="20/s", begun=float(number), seconds=0.01 * (number + 1))
        recorder.finish(
            figures={"rate": rate, "wait": {"p50": 0.5}, **figures},
            checks=[equal("a|b", 2, 2), at_most("rate", rate, 40), shown("wait", "p50 0.5")],
        )
    return folder


def test_a_page_tells_of_each_result_its_claims_its_environment_and_its_curves(tmp_path: Path) -> None:
    results = [a_result(tmp_path / "one"), a_result(tmp_path / "two", rate=50.0)]
    page = write(results, tmp_path / "report")
    text = page.read_text(encoding="utf-8")
    assert "| [one](#one) | open | memory |  | passed |  |" in text
    assert "| [two](#two) | open | memory |  | FAILED | rate |" in text
    assert "| ✓ | a\\|b | = 2 | 2 |" in text
    assert "| ✗ | rate | ≤ 40 | 50 |" in text
    assert "cores 2" in text
    pictures = [line.partition("](")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")]
    assert pictures == ["one-1.png", "two-1.png"]
    assert all((page.parent / picture).read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_a_page_is_written_over_a_page_and_over_nothing_else(tmp_path: Path) -> None:
    result = a_result(tmp_path / "one", rows=0)
    write([result], tmp_path / "report")
    write([result], tmp_path / "report")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / PAGE.upper()).write_text("mine")
    with pytest.raises(FileExistsError, match="no report"):
        write([result], tmp_path / "mine")


def test_two_results_stand_side_by_side_with_ratios_and_what_differs_between_them(tmp_path: Path) -> None:
    text = compared(a_result(tmp_path / "one"), a_result(tmp_path / "two", rate=50.0, extra=1))
    assert "| rate | ✓ 40 | ✗ 50 |" in text
    assert "| rate | 40 | 50 | 1.25 |" in text
    assert "| wait, p50 | 0.5 | 0.5 | 1 |" in text
    assert "| extra |  | 1 |  |" in text
    assert "| rate | 40.0 | 50.0 |" in text.partition("environment")[2]
    assert "cores" not in text.partition("environment")[2]


def test_what_holds_no_result_is_said_and_is_a_usage_error(tmp_path: Path) -> None:
    result = a_result(tmp_path / "one", rows=0)
    for asked in (["report", str(tmp_path), "--out", str(tmp_path / "r")], ["compare", str(result), str(tmp_path)]):
        ended = CliRunner().invoke(app, asked)
        assert ended.exit_code == 2
        assert "holds no result" in ended.stderr


def test_rows_are_drawn_by_what_they_hold() -> None:
    request = {"name": "submit", "begun": 1.0, "seconds": 0.1}
    run = {"created_at": "2026-11-30T12:00:00.000Z", "finished_at": "2026-11-30T12:00:00.250Z"}
    sample = {"process": "server", "at": 0.0, "resident_mb": 50.0, "descriptors": 9}
    assert curves("any", {}, []) == []
    assert len(curves("any", {}, [request])) == 1
    assert len(curves("any", {}, [run, {**run, "finished_at": None}])) == 1
    assert len(curves("any", {}, [sample])) == 2
    levels = {f"{n} workers": {"ideal": 2.0 * n, "end_to_end": 1.9 * n, "drain": 1.9 * n} for n in (1, 2)}
    assert len(curves("workers", levels, [])) == 1
    assert curves("workers", {}, []) == []
