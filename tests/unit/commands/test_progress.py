"""What a person sees of a run while it goes on: the board folded from its events, one line an event, the live view."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pytest
from rich.console import Console

from fanfold.client.errors import NotReachable
from fanfold.client.results import Event, MapProgress, Run
from fanfold.commands import run_progress
from fanfold.commands.run_progress import Board, line, watch


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


def board(*events: Event, **given: Any) -> Board:
    result = Board("r1", steps=["left", "right"], **given)
    for each in events:
        result.add(each)
    return result


def a_run(**facts: Any) -> Run:
    steps = {"left": {}, "right": {}}
    return cast(Run, {"id": "r1", "workflow": "w", "steps": steps, **facts})  # only what a view looks at


def drawn(board: Board, **given: Any) -> str:
    written = io.StringIO()
    Console(file=written, width=160).print(board.tree(**given))
    return written.getvalue()


def test_the_board_follows_status_epoch_and_attempts() -> None:
    middle = board(*STORY[:5])
    assert (middle.head.status, middle.head.epoch, middle.steps["left"].status) == ("running", 2, "interrupted")
    end = board(*STORY)
    assert (end.head.status, end.steps["left"].status, end.steps["left"].attempt) == ("failed", "failed", 2)
    assert end.steps["right"].status == "pending"


def test_a_steps_duration_counts_from_its_newest_attempt() -> None:
    left = board(*STORY).steps["left"]
    assert left.began is not None
    assert left.ended is not None
    assert (left.ended - left.began).total_seconds() == 1


def test_what_goes_on_is_timed_by_the_service_and_by_what_has_passed_here_since() -> None:
    passed = [100.0]
    going_on = board(*STORY[:3], monotonic=lambda: passed[0])
    passed[0] += 2.5
    assert "2.50 s" in drawn(going_on).splitlines()[1]
    assert "4.50 s" in drawn(going_on).splitlines()[0]


def test_a_run_let_go_of_waits_and_so_does_what_it_had_begun() -> None:
    waiting = board(*STORY[:3], event(4, "run.suspended"))
    assert (waiting.head.status, waiting.steps["left"].status) == ("waiting", "waiting")


def test_a_redriven_run_goes_on() -> None:
    again = board(*STORY, event(9, "run.redriven"))
    assert (again.head.status, again.head.ended) == ("waiting", None)


def test_a_step_the_run_did_not_name_gets_a_line_of_its_own() -> None:
    assert "new" in board(event(1, "step.started", step="new", attempt=1)).steps


def test_a_line_tells_number_time_type_step_and_what_it_is_about() -> None:
    assert line(STORY[6]).split() == ["7", "12:00:07.250", "step.failed", "left", "#2", "Boom:", "it", "broke"]
    assert line(event(1, "step.emitted", step="a", attempt=1, data={"n": 1})).endswith('data={"n": 1}')
    assert line(event(1, "run.accepted")) == "   1  12:00:01.250  run.accepted"
    retry = event(1, "step.retry_scheduled", step="a", error={"type": "E", "message": "m"}, delay_seconds=0.6812)
    assert line(retry).endswith("E: m again in 0.681 s")


def test_piped_progress_is_one_line_an_event_and_hands_each_on() -> None:
    written = io.StringIO()
    assert list(watch(STORY, Console(file=written, width=200), a_run())) == STORY
    assert len(written.getvalue().splitlines()) == len(STORY)


def terminal() -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, width=100, height=30, force_terminal=True), written


def test_a_terminal_gets_a_tree_with_every_step() -> None:
    console, written = terminal()
    assert list(watch(STORY, console, a_run())) == STORY
    assert "left" in written.getvalue()
    assert "run.accepted" not in written.getvalue()


def test_a_terminal_that_asks_for_lines_gets_both() -> None:
    console, written = terminal()
    list(watch(STORY, console, a_run(), lines=True))
    for seen in ("run.accepted", "└─"):
        assert seen in written.getvalue()


def slowly(events: Sequence[Event], seen: io.StringIO, until: str) -> Iterator[Event]:
    """The events but for the last; that one comes once `until` was seen, or after a while."""
    yield from events[:-1]
    end = time.monotonic() + 10
    while until not in seen.getvalue() and time.monotonic() < end:
        time.sleep(0.01)
    yield events[-1]


def test_open_maps_are_looked_at_and_drawn_as_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_progress, "LOOK_SECONDS", 0.02)
    asked: list[Sequence[str]] = []

    def look(names: Sequence[str]) -> Mapping[str, MapProgress]:
        asked.append(names)
        if len(asked) == 1:
            raise NotReachable("for a moment")
        return {"left": {"items": 10_000, "done": 4_210, "failed": 12}}

    console, written = terminal()
    begun = event(3, "map.started", step="left", items=10_000, via="states")
    story = [*STORY[:2], begun, event(4, "step.started", step="right"), STORY[-1]]
    list(watch(slowly(story, written, "4,210/10,000"), console, a_run(), look=look))
    assert "4,210/10,000" in written.getvalue()
    assert "12 failed" in written.getvalue()
    # Steps that are no maps are never asked for.
    assert all(list(names) == ["left"] for names in asked)


def test_a_map_has_its_bar_from_its_own_events_where_nobody_looks() -> None:
    begun = board(*STORY[:2], event(3, "map.started", step="left", items=12, via="inline"))
    assert "0/12" in drawn(begun)
    assert list(begun.open_maps()) == ["left"]
    begun.add(event(4, "map.finished", step="left", items=12, failed=2))
    begun.add(event(5, "step.succeeded", step="left", attempt=1))
    assert "12/12 2 failed" in drawn(begun)
    assert list(begun.open_maps()) == []
