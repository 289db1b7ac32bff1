"""The table of targets: each row has a scenario that answers it, and says what results say, or that there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.report import write
from loadtest.results import RESULTS, SUMMARY, Recorder, read
from loadtest.scenario import Found, perform
from loadtest.scenarios import SCENARIOS
from loadtest.scenarios.kills import judged
from loadtest.scoreboard import table
from loadtest.targets import Goal
from loadtest.verdict import Check, at_least, at_most, equal, shown, toward


def a_result(folder: Path, scenario: str, *checks: Check, quick: bool = False, target: str = "emulator") -> Path:
    environment = {"cores": 2, "target": target, "quick": quick, "ceilings": {"calls/s": "about 600"}}
    with Recorder(folder, scenario=scenario, environment=environment) as recorder:
        recorder.finish(figures={}, checks=checks)
    return folder


def rows_of(*folders: Path) -> dict[Goal, list[str]]:
    """The cells of each target's row."""
    lines = list(table([(folder, read(folder)) for folder in folders]))[2:]
    assert len(lines) == len(Goal)
    return {aim: [cell.strip() for cell in line.strip("|").split(" | ")] for aim, line in zip(Goal, lines, strict=True)}


@pytest.mark.parametrize("aim", Goal, ids=str)
def test_each_target_is_answered_by_a_kept_result_of_each_of_its_scenarios(aim: Goal) -> None:
    assert set(aim.scenarios) <= set(SCENARIOS)
    kept = [read(summary.parent) for summary in sorted(RESULTS.glob(f"*/{SUMMARY}"))]
    for name in aim.scenarios:
        checks = [check for result in kept if result["scenario"] == name for check in result["checks"]]
        assert [check["measured"] for check in checks if check["aim"] == aim], f"{name} answers {aim!r} nowhere"


def test_a_check_that_answers_a_target_of_another_scenario_is_refused(tmp_path: Path) -> None:
    def stray(session: object) -> Found:
        return Found(figures={}, checks=toward(Goal.STORM, equal("accepted", 1, 1)))

    with pytest.raises(ValueError, match=r"looked for elsewhere.*storm"):
        perform(stray, name="engine", kind="memory", folder=tmp_path / "it", quick=True)


def test_a_page_begins_with_a_row_for_each_target_and_says_which_were_not_measured(tmp_path: Path) -> None:
    engine = a_result(
        tmp_path / "one-engine",
        "engine",
        *toward(Goal.ENGINE, at_least("diamonds per second", 640, 500, "/s"), n=10_000),
        *toward(Goal.LEVEL, at_most("overhead", 0.05, 0.03, " s"), n=100),
    )
    text = write([engine], tmp_path / "report").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[2].startswith("| figure | to reach | measured | met | by |")
    rows = rows_of(engine)
    assert rows[Goal.ENGINE][2:4] == ["diamonds per second: **640/s** (≥ 500/s, n = 10,000)", "met"]
    assert "`python -m loadtest engine` → [one-engine](#one-engine)" in rows[Goal.ENGINE][4]
    assert rows[Goal.LEVEL][3] == "**not met**"
    assert rows[Goal.STORM][2:4] == ["*storm: not measured*", "missing"]
    assert '<a id="one-engine"></a>' in text
    assert "| calls/s | about 600 |" in text


def test_a_full_result_is_shown_before_a_short_one_and_one_on_its_target_before_others(tmp_path: Path) -> None:
    check = toward(Goal.STORM, equal("accepted", 50, 50))
    short = a_result(tmp_path / "short", "storm", *check, quick=True)
    memory = a_result(tmp_path / "memory", "storm", *check, target="memory")
    full = a_result(tmp_path / "full", "storm", *check)
    assert "[full]" in rows_of(short, full, memory)[Goal.STORM][4]
    assert "[short]" in rows_of(memory, short)[Goal.STORM][4]
    assert "--quick" in rows_of(memory, short)[Goal.STORM][4]


def test_a_row_that_needs_two_results_is_not_met_by_one_nor_by_figures_that_are_only_shown(tmp_path: Path) -> None:
    wide = a_result(tmp_path / "wide", "workers", *toward(Goal.WIDE, at_least("share", 0.95, 0.9)))
    peer = a_result(
        tmp_path / "peer", "peer-swarmkit", *toward(Goal.WIDE, at_least("ratio", 1.2, 1), shown("rates", 3))
    )
    timed = Check(what="ratio", target="≥ 1", measured="1.2", holds=True, shown=True)
    short = a_result(tmp_path / "short", "peer-swarmkit", *toward(Goal.WIDE, timed), quick=True)
    assert rows_of(wide)[Goal.WIDE][3] == "part missing"
    assert rows_of(wide, peer)[Goal.WIDE][3] == "met"
    assert rows_of(wide, short)[Goal.WIDE][3] == "short version: shown only"


def test_kills_are_judged_by_journals_and_by_what_was_really_executed() -> None:
    def event(seq: int, kind: str, attempt: int) -> dict[str, object]:
        return {"seq": seq, "type": kind, "step": "one", "attempt": attempt}

    def line(attempt: int) -> dict[str, object]:
        return {"run": "r", "step": "one", "attempt": attempt}

    journal = [event(1, "step.interrupted", 1), event(2, "step.succeeded", 2)]
    told = judged({"r": journal}, [line(1), line(2)])
    assert (told.interrupted, told.repeated, told.unexplained, told.gaps) == (1, 0, 0, 0)
    told = judged({"r": journal[1:]}, [line(2), line(3)])
    assert (told.interrupted, told.repeated, told.unexplained, told.gaps) == (0, 1, 1, 1)
