"""A measurement's folder: what it holds however the measurement ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.measure import quantiles
from loadtest.results import Recorder, read, rows
from loadtest.verdict import Check, at_least, at_most, equal, holds, shown


def a_recorder(folder: Path) -> Recorder:
    """A recorder of a scenario named `tiny`."""
    return Recorder(folder, scenario="tiny", environment={"cores": 2})


def test_a_result_holds_its_rows_figures_claims_and_environment(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    with a_recorder(folder) as recorder:
        recorder.row(name="submit", seconds=0.25)
        recorder.row(name="submit", seconds=0.5)
        recorder.note(workers=1)
        passed = recorder.finish(
            figures={"submit": quantiles([0.25, 0.5]), "levels": {5: 1.0}}, checks=[equal("rows", 2, 2)]
        )
    assert passed
    assert [row["seconds"] for row in rows(folder)] == [0.25, 0.5]
    summary = read(folder)
    assert (summary["passed"], summary["error"]) == (True, None)
    assert summary["figures"]["submit"]["n"] == 2
    assert summary["figures"]["levels"] == {"5": 1.0}
    assert summary["checks"][0]["what"] == "rows"
    assert summary["environment"] == {"cores": 2, "workers": 1}


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with a_recorder(tmp_path / name) as recorder:
            recorder.row(n=1)
            recorder.finish(figures={}, checks=[equal("rows", 1, 1)])
    raw = [(tmp_path / name / "raw.jsonl.gz").read_bytes() for name in ("one", "two")]
    assert raw[0] == raw[1]


def test_a_measurement_that_fails_leaves_a_result_that_says_so_and_has_not_passed(tmp_path: Path) -> None:
    def failing() -> None:
        with a_recorder(tmp_path / "result") as recorder:
            recorder.row(n=1)
            raise TimeoutError("3 of 4 runs had not ended")

    with pytest.raises(TimeoutError):
        failing()
    summary = read(tmp_path / "result")
    assert (summary["passed"], summary["error"]) == (False, "TimeoutError: 3 of 4 runs had not ended")
    assert list(rows(tmp_path / "result")) == [{"n": 1}]


def test_an_interrupted_measurement_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with a_recorder(tmp_path / "result") as recorder:
            recorder.row(n=1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not (tmp_path / "result").exists()


def test_a_result_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "result").mkdir()
    with pytest.raises(FileExistsError):
        a_recorder(tmp_path / "result")


@pytest.mark.parametrize(
    ("checks", "passed"),
    [
        ([equal("rows", 3, 3), shown("rate", 5)], True),
        ([equal("rows", 2, 3)], False),
        ([at_most("p95", 0.3, 0.3), at_least("rate", 2, 2)], True),
        ([at_most("p95", 0.31, 0.3)], False),
        ([at_least("rate", 1.9, 2)], False),
        ([shown("rate", 5)], False),
        ([], False),
    ],
)
def test_a_verdict_needs_a_claim_and_every_claim(checks: list[Check], passed: bool) -> None:
    assert holds(checks) is passed


def test_quantiles_are_measured_values_by_nearest_rank_and_say_how_many() -> None:
    found = quantiles(range(1, 101))
    assert (found.n, found.p50, found.p95, found.p99, found.maximum) == (100, 50, 95, 99, 100)
    assert quantiles([3]) == quantiles(iter([3]))
    assert (quantiles([3, 1, 2]).p50, quantiles([3, 1, 2]).p99) == (2, 3)
    assert "n = 3" in str(quantiles([3, 1, 2]))


def test_quantiles_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        quantiles([])
