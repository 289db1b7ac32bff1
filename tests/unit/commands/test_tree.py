"""How a run looks: its tree, its bars, its durations; in a pipe and where there is little room."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from rich.console import Console

from fanfold.client.results import MapProgress, Run
from fanfold.commands.run_tree import Head, StepLine, show, tree

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
AT = "2026-11-30T12:00:00.000Z"


def a_step(status: str = "succeeded", **facts: Any) -> dict[str, Any]:
    step = {"attempts": 1, "started_at": AT, "finished_at": "2026-11-30T12:00:01.500Z", "output": None, "error": None}
    return {"status": status, **step, **facts}


def a_run(**facts: Any) -> Run:
    run = {
        "id": "r[1]", "workflow": "w", "status": "succeeded", "reason": None, "epoch": 1, "created_at": AT,
        "finished_at": AT, "error": None, "output": None, "steps": {"left": a_step()},
    }  # fmt: skip
    return cast(Run, {**run, **facts})


def shown(run: Run, *, width: int = 200, now: datetime | None = None) -> list[str]:
    written = io.StringIO()
    show(run, Console(file=written, width=width), now=now)
    return written.getvalue().splitlines()


def test_a_run_is_a_tree_of_its_steps_in_order() -> None:
    lines = shown(a_run(steps={"seed": a_step(), "left": a_step(attempts=3), "right": a_step("pending")}))
    assert lines[0].split() == ["✓", "r[1]", "succeeded", "0.00", "s", "epoch", "1", "w"]
    assert [line[:3] for line in lines[1:]] == ["├─ ", "├─ ", "└─ "]
    assert lines[2].split() == ["├─", "✓", "left", "succeeded", "1.50", "s", "attempt", "3"]


def test_what_tasks_say_is_never_taken_for_markup_nor_cut_off() -> None:
    fault = {"type": "Boom", "message": "[red]not markup " + "very long " * 40}
    run = a_run(status="failed", reason="step_failed", error=fault, steps={"left": a_step("failed", error=fault)})
    text = " ".join("\n".join(shown(run, width=100)).split())
    assert "[red]not markup" in text
    assert text.count("very long") == 80
    assert "failed (step_failed)" in text


def test_the_error_of_an_attempt_that_was_made_good_is_not_shown() -> None:
    fault = {"type": "Boom", "message": "once"}
    assert "Boom" not in "".join(shown(a_run(steps={"left": a_step(attempts=2, error=fault)})))


def test_what_still_goes_on_is_timed_up_to_now() -> None:
    run = a_run(status="running", finished_at=None, steps={"left": a_step("running", finished_at=None)})
    lines = shown(run, now=NOW + timedelta(minutes=61, seconds=5))
    assert "1 h 01 min" in lines[1]
    assert "2 min 05 s" in shown(run, now=NOW + timedelta(seconds=125))[1]


@pytest.mark.parametrize(
    ("items", "done", "failed", "expected"),
    [
        (10, 5, 0, "██████████░░░░░░░░░░ 5/10"),
        (0, 0, 0, "░░░░░░░░░░░░░░░░░░░░ 0/0"),
        (10_000, 10_000, 1, "███████████████████▒ 10,000/10,000 1 failed"),
        (4, 2, 2, "▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░ 2/4 2 failed"),
    ],
)
def test_a_map_has_a_bar_of_twenty_cells(items: int, done: int, failed: int, expected: str) -> None:
    progress: MapProgress = {"items": items, "done": done, "failed": failed}
    assert shown(a_run(steps={"left": a_step("waiting", map=progress)}))[1].rstrip().endswith(expected)


def test_where_there_is_no_room_for_all_steps_those_that_something_happens_to_are_shown() -> None:
    steps = {f"s{n}": StepLine(status="pending" if n > 50 else "succeeded") for n in range(100)}
    steps["s97"].status = "running"
    steps["s3"].status = "failed"
    written = io.StringIO()
    Console(file=written, width=100).print(tree(Head(run_id="r1"), steps, now=None, rows=8))
    lines = written.getvalue().splitlines()
    assert len(lines) == 8
    assert {"s3", "s97"} <= {line.split()[2] for line in lines[1:7]}
    assert lines[7].strip() == "└─ … 46 succeeded, 48 pending"


def test_a_live_row_is_never_more_than_one_line() -> None:
    steps = {"left": StepLine(status="failed", note="a long note " * 50)}
    written = io.StringIO()
    Console(file=written, width=80).print(tree(Head(run_id="r1"), steps, now=None, rows=10))
    assert len(written.getvalue().splitlines()) == 2


def test_a_run_of_many_kinds_says_so_by_sign_and_word() -> None:
    statuses = ["running", "waiting", "retrying", "interrupted", "failed", "skipped", "cancelled", "paused", "new-one"]
    lines = shown(a_run(steps={f"s{n}": a_step(status) for n, status in enumerate(statuses)}))
    assert [line.split()[3] for line in lines[1:]] == statuses
