"""Whatever somebody else wrote is shown, and does nothing to the terminal: each command and viewer that prints data."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fanfold.commands import output, run_progress, run_tree
from fanfold.commands.command_line import main
from fanfold.local import tokens
from fanfold.service.telemetry.reporting import logger
from fanfold.text.printable import shown, shown_json, shown_lines
from tests.support.builders import a_token
from tests.unit.commands.test_cli import EVENTS, RUN, Service, local_stack, service

__all__ = ["local_stack", "service"]

Printed = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]

C0 = "".join(map(chr, range(0x20)))
C1 = "".join(map(chr, range(0x7F, 0xA0)))
EVIL = f"a{C0}{C1}\ud800\u202e\u2028 [/x] [bold]b[/bold] :boom: é"
"""What a tenant may have put into its data: JSON lets all of that through."""


def assert_harmless(text: str, *, styled: bool = False) -> None:
    """Only newlines are left of what controls a terminal (and, `styled`, the colours that rich makes)."""
    if styled:
        text = re.sub(r"\x1b\[[0-9;]*[mKAJ]|\x1b\[\?25[lh]|\r", "", text)
    bad = {f"U+{ord(each):04X}" for each in text if unicodedata.category(each) in ("Cc", "Cs", "Zl") and each != "\n"}
    assert bad == set()
    assert "\u202e" not in text
    text.encode("utf-8")


@pytest.mark.parametrize("code", [*range(0x20), *range(0x7F, 0xA0), 0xD800, 0xDFFF, 0x202E, 0x2066, 0x2028, 0xFEFF])
def test_each_such_character_is_written_out(code: int) -> None:
    said = shown(f"a{chr(code)}b")
    assert_harmless(said)
    assert (said[0], said[-1], said[1]) == ("a", "b", "\\")
    assert "\n" not in said
    assert shown(said) == said
    text = json.dumps(f"a{chr(code)}b", ensure_ascii=False)
    assert_harmless(shown_json(text))
    assert json.loads(shown_json(text)) == f"a{chr(code)}b"


def test_everything_else_is_shown_as_it_is() -> None:
    for text in ("plain", "Zoë [/x] :boom: 日本 👩‍🚀 — “”", ""):
        assert (shown(text), shown_lines(text), shown_json(text)) == (text, text, text)
    assert shown_lines("a\nb\tc") == "a\nb\\tc"


@pytest.fixture(params=["pipe", "terminal"])
def console(request: pytest.FixtureRequest) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=request.param == "terminal", width=200, height=40, markup=True, emoji=True
    )


def evil_run() -> Any:
    fault = {"type": EVIL, "message": EVIL}
    step = {**RUN["steps"]["hello"], "status": "failed", "error": fault}
    facts: dict[str, Any] = {"id": EVIL, "workflow": EVIL, "status": EVIL, "reason": EVIL, "tags": {EVIL: EVIL}}
    return {**RUN, **facts, "error": fault, "output": {EVIL: [EVIL]}, "steps": {EVIL: step}}


def evil_events() -> list[Any]:
    failed = {**EVENTS[1], "type": "step.failed", "step": EVIL, "error": {"type": EVIL, "message": EVIL}}
    emitted = {**EVENTS[1], "type": "step.emitted", "step": EVIL, "data": {EVIL: EVIL}, EVIL: EVIL, "text": EVIL}
    return [EVENTS[0], failed, {**emitted, "seq": 3}, {**EVENTS[2], "seq": 4, "type": EVIL}]


def written(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_the_view_of_a_run_is_harmless_on_any_console(console: Console) -> None:
    run_tree.show(evil_run(), console, now=datetime.now(UTC))
    assert_harmless(written(console), styled=console.is_terminal)
    assert "[/x] [bold]b[/bold] :boom:" in re.sub(r"\x1b\[[0-9;]*m", "", written(console))


def test_the_live_view_and_the_lines_of_events_are_harmless(console: Console) -> None:
    for _ in run_progress.watch(evil_events(), console, evil_run(), lines=True):
        pass
    assert_harmless(written(console), styled=console.is_terminal)


def test_an_event_is_one_line_whatever_it_says() -> None:
    for event in evil_events():
        assert_harmless(run_progress.line(event))
        assert "\n" not in run_progress.line(event)


@pytest.mark.parametrize(
    "command",
    [
        ["runs"],
        ["show", "r1"],
        ["events", "r1"],
        ["submit", "tiny"],
        ["submit", "tiny", "--wait"],
        ["submit", "--batch", "runs.jsonl"],
        ["cancel", "r1"],
        ["fork", "r1", "--from", "a"],
        ["signal", "r1", "a"],
        ["queues"],
        ["queues", "--watch", "--looks", "1"],
        ["apply", "flow.json"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("json_", [False, True], ids=["text", "json"])
def test_no_answer_of_the_service_does_anything_to_the_terminal(
    service: type[Service], capsys: Printed, tmp_path: Path, command: list[str], json_: bool
) -> None:
    run = evil_run()
    lane = {"class": EVIL, "lanes": {EVIL: {"queued": 1}}, "queued": 1, "max_queue_depth": 2}
    problem = {"title": EVIL, "detail": EVIL, "status": 429, "type": EVIL}
    (tmp_path / "runs.jsonl").write_text('{"workflow": "tiny"}\n{"workflow": "tiny"}\n')
    (tmp_path / "flow.json").write_text('{"name": "tiny", "steps": {}}')
    service.answers = {
        "GET /v1/runs/r1": (200, run),
        "GET /v1/runs": (200, {"runs": [run], "next_cursor": None}),
        "GET /v1/runs/r1/events": (200, {"events": evil_events(), "last_seq": 4, "end": True}),
        "POST /v1/runs": (202, {**run, "id": "r1"}),
        "POST /v1/runs/batch": (
            200,
            {"results": [{"status": 202, "run": run}, {"status": 422, "problem": problem}]},
        ),
        "POST /v1/runs/r1/cancel": (202, run),
        "POST /v1/runs/r1/fork": (202, run),
        "POST /v1/runs/r1/signals/a": (202, {"seq": EVIL}),
        "GET /v1/queues": (200, {"queues": [{**lane, "oldest_age_seconds": 1.0, "drain_per_second": 1.0}]}),
        "PUT /v1/workflows/tiny": (201, {"name": EVIL, "version": EVIL, "created_at": EVIL}),
    }
    if "--wait" in command:
        service.answers["GET /v1/runs/r1"] = (200, {**run, "status": "failed"})
    status = main([*command, *(["--json"] if json_ else [])])
    said = capsys.readouterr()
    assert status in (0, 1, 2), said
    assert said.out
    assert_harmless(said.out)
    assert_harmless(said.err)
    if json_:
        told = [json.loads(said.out)] if said.out.startswith(("{\n", "[\n")) else map(json.loads, said.out.splitlines())
        assert EVIL in json.dumps(list(told), ensure_ascii=False) or "\\ud800" in said.out


@pytest.mark.parametrize("json_", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("errors", [[], [{"pointer": EVIL, "detail": EVIL}] * 2], ids=["one reason", "reasons"])
@pytest.mark.parametrize("status", [404, 422, 429, 503])
def test_a_problem_is_told_without_doing_anything(
    service: type[Service], capsys: Printed, monkeypatch: pytest.MonkeyPatch, status: int, errors: Any, json_: bool
) -> None:
    monkeypatch.setattr(output, "RETRY_SECONDS", 0.01)
    problem = {"type": EVIL, "title": EVIL, "status": status, "detail": EVIL, "errors": errors, EVIL: EVIL}
    service.answers["GET /v1/runs/r1"] = (status, problem)
    assert main(["show", "r1", *(["--json"] if json_ else [])]) > 0
    said = capsys.readouterr()
    assert (said.out, bool(said.err)) == ("", True)
    assert_harmless(said.err)


@pytest.mark.usefixtures("local_stack")
@pytest.mark.parametrize("json_", [False, True], ids=["text", "json"])
def test_the_owner_of_a_token_is_shown_as_it_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed, json_: bool
) -> None:
    for owner in ("ann [/x]", EVIL):
        stored = a_token(1, owner=owner)
        monkeypatch.setattr(tokens, "_run", lambda environ, use, stored=stored: [stored])
        more = ["--json"] if json_ else []
        assert main(["token", "list", *more]) == 0
        said = capsys.readouterr().out
        assert_harmless(said)
        assert "[/x]" in said
        monkeypatch.setattr(tokens, "_run", lambda environ, use, stored=stored: stored)
        assert main(["token", "revoke", stored.id, *more]) == 0
        assert_harmless(capsys.readouterr().out)


def test_a_cell_of_any_table_is_harmless_even_where_nobody_thought_of_it(capsys: Printed) -> None:
    output.console().print(EVIL)
    said = capsys.readouterr().out
    assert_harmless(said)
    assert "[/x] [bold]b[/bold] :boom:" in " ".join(said.split())


@pytest.mark.parametrize("speak", [output.say, output.tell, output.emit], ids=["say", "tell", "emit"])
def test_whatever_a_command_says_is_harmless(capsys: Printed, speak: Callable[[str], None]) -> None:
    speak(EVIL)
    said = capsys.readouterr()
    assert_harmless(said.out + said.err)


def test_a_log_line_of_a_worker_is_json_and_harmless(capsys: Printed) -> None:
    logger().setLevel(logging.INFO)
    logger().info("about", extra={"error": EVIL})
    (line,) = capsys.readouterr().out.splitlines()
    assert_harmless(line)
    assert json.loads(line)["error"] == EVIL


def test_commands_print_through_one_module_alone() -> None:
    """A bare print or a console of one's own would pass over what is promised here."""
    free = {"output.py"}
    found = []
    for path in [*(ROOT / "fanfold").glob("*.py"), *(ROOT / "fanfold" / "commands").glob("*.py")]:
        # Processes of their own, whose output is a log.
        if path.name in free or path.name in ("bridge.py", "emulator.py", "tee.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "Console"):
                told = ast.unparse(node)
                found += [] if "\\x1b[K" in told else [f"{path.name}: {told}"]
    assert found == []
