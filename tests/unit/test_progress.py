"""What a person sees of a run: the board folded from its events, one line an event, the run as it stands."""

from __future__ import annotations

import io
from typing import Any, cast

from rich.console import Console

from fanfold.progress import Board, line, show, watch
from fanfold.results import Event, Run


def event(seq: int, type: str, **facts: Any) -> Event:
    return cast(Event, {"seq": seq, "at": f"2026-11-30T12:00:0{seq}.250Z", "type": type, **facts})


STORY = [
    event(1, "run.accepted"),
    event(2, "run.claimed", worker="a:1", epoch=1),
    event(3, "step.started", step="left", attempt=1),
    event(4, "run.claimed", worker="b:2", epoch=2),
    event(5, "step.interrupted", step="left", attempt=1),
    event(6, "step.started", step="left", attempt=2),
    event(7, "step.failed", step="left", attempt=2, error={"type": "Boom", "message": "it broke"}),
    event(8, "run.failed", reason="step_failed"),
]


def board(*events: Event) -> Board:
    result = Board("r1", steps=["left", "right"])
    for each in events:
        result.add(each)
    return result


def test_the_board_follows_status_epoch_and_attempts() -> None:
    middle = board(*STORY[:5])
    assert (middle.status, middle.epoch, middle.steps["left"].status) == ("running", 2, "interrupted")
    end = board(*STORY)
    assert (end.status, end.steps["left"].status, end.steps["left"].attempt) == ("failed", "failed", 2)
    assert end.steps["right"].status == "pending"


def test_a_steps_duration_counts_from_its_newest_attempt() -> None:
    left = board(*STORY).steps["left"]
    assert left.began is not None
    assert left.ended is not None
    assert (left.ended - left.began).total_seconds() == 1


def test_a_step_the_run_did_not_name_gets_a_line_of_its_own() -> None:
    assert "new" in board(event(1, "step.started", step="new", attempt=1)).steps


def test_a_line_tells_number_time_type_step_and_what_it_is_about() -> None:
    assert line(STORY[6]).split() == ["7", "12:00:07.250", "step.failed", "left", "#2", "Boom:", "it", "broke"]
    assert line(event(1, "step.emitted", step="a", attempt=1, data={"n": 1})).endswith('data={"n": 1}')
    assert line(event(1, "run.accepted")) == "   1  12:00:01.250  run.accepted"


def a_run(**facts: Any) -> Run:
    step = {"status": "failed", "attempts": 1, "started_at": None, "finished_at": None, "output": None}
    run = {"id": "r[1]", "workflow": "w", "status": "failed", "reason": "step_failed", "epoch": 1, "created_at": "now"}
    fault = {"type": "Boom", "message": "[red]not markup"}
    return cast(Run, {**run, "error": fault, "output": None, "steps": {"left": {**step, "error": fault}}, **facts})


def test_what_tasks_say_is_never_taken_for_markup() -> None:
    written = io.StringIO()
    show(a_run(), Console(file=written, width=200))
    assert "[red]not markup" in written.getvalue()
    assert "r[1]" in written.getvalue()


def test_piped_progress_is_one_line_an_event_and_hands_each_on() -> None:
    written = io.StringIO()
    assert list(watch(STORY, Console(file=written, width=200), a_run())) == STORY
    assert len(written.getvalue().splitlines()) == len(STORY)


def test_a_terminal_gets_a_board_with_every_step() -> None:
    written = io.StringIO()
    console = Console(file=written, width=100, force_terminal=True)
    assert list(watch(STORY, console, a_run())) == STORY
    assert "left" in written.getvalue()
