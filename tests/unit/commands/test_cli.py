"""The command line against a small HTTP service: what it prints, and its exit status for every kind of end."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fanfold.commands import stack
from fanfold.commands.command_line import main
from fanfold.local import local_stack as local
from fanfold.local import tokens
from fanfold.local.local_stack import LocalStack
from tests.support.builders import a_token

STEP = {"status": "succeeded", "attempts": 2, "started_at": None, "finished_at": None, "output": 1, "error": None}
RUN: dict[str, Any] = {
    "id": "r1", "workflow": "tiny", "version": "sha256:0", "status": "succeeded", "reason": None, "error": None,
    "class": "model", "lane": "normal", "tags": {}, "created_at": "2026-11-30T00:00:00.000Z", "started_at": None,
    "finished_at": None, "input": {}, "output": {"greeting": "hello"}, "epoch": 1, "steps": {"hello": STEP},
    "links": {},
}  # fmt: skip
EVENTS: list[dict[str, Any]] = [
    {"seq": 1, "at": "2026-11-30T00:00:00.000Z", "type": "run.accepted"},
    {"seq": 2, "at": "2026-11-30T00:00:00.100Z", "type": "step.started", "step": "hello", "attempt": 2},
    {"seq": 3, "at": "2026-11-30T00:00:00.200Z", "type": "run.succeeded"},
]


class Service(BaseHTTPRequestHandler):
    """Answers by method and path; `asked` has what came."""

    answers: ClassVar[dict[str, tuple[int, Any]]] = {}
    asked: ClassVar[list[tuple[str, Any]]] = []

    def _answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        call = f"{self.command} {self.path.split('?')[0]}"
        self.asked.append((f"{self.command} {self.path}", body))
        status, value = self.answers.get(call, (404, {"title": "Not found", "detail": f"There is no {self.path}."}))
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        if status == 429:
            self.send_header("retry-after", "60")
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the tests look at what the command prints."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Service]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("FANFOLD_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("FANFOLD_TOKEN", "ff_token")
    monkeypatch.chdir(tmp_path)
    Service.asked = []
    Service.answers = {
        "GET /v1/runs/r1": (200, RUN),
        "GET /v1/runs/r1/events": (200, {"events": EVENTS, "last_seq": 3, "end": True}),
        "POST /v1/runs": (202, {"id": "r1", "status": "queued"}),
        "GET /v1/runs": (200, {"runs": [RUN], "next_cursor": None}),
        "PUT /v1/workflows/tiny": (201, {"name": "tiny", "version": "sha256:0", "created_at": "…"}),
    }
    yield Service
    server.shutdown()
    thread.join()
    server.server_close()


Printed = pytest.CaptureFixture[str]


def test_submit_prints_the_id_and_nothing_else(service: type[Service], capsys: Printed) -> None:
    assert main(["submit", "tiny", "--input", '{"name": "you"}', "--tag", "team=red", "--lane", "high"]) == 0
    assert capsys.readouterr().out == "r1\n"
    assert json.loads(service.asked[0][1]) == {
        "workflow": "tiny",
        "input": {"name": "you"},
        "tags": {"team": "red"},
        "lane": "high",
    }


def test_the_next_commands_that_up_names_can_be_called_as_they_are_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Printed
) -> None:
    itself = Path(sys.executable).with_name("fanfold")
    monkeypatch.setenv("PATH", str(itself.parent))
    stack.next_commands("runs")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(itself.parent.parent)
    stack.next_commands("runs")
    monkeypatch.chdir(tmp_path)
    stack.next_commands("runs")
    told = [line.split()[1:] for line in capsys.readouterr().out.splitlines()]
    assert told[0] == ["fanfold", "runs"]
    assert [Path(itself.parent.parent, words[0]) for words in told[1:]] == [itself, itself]


def test_a_delay_and_a_version_are_sent_as_they_are_said(service: type[Service]) -> None:
    assert main(["submit", "tiny", "--delay", "30s", "--version", "sha256:0"]) == 0
    sent = json.loads(service.asked[0][1])
    assert (sent["delay"], sent["version"]) == ("30s", "sha256:0")


def test_submit_reads_its_input_from_a_file(service: type[Service], tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text("[1, 2]")
    assert main(["submit", "tiny", "--input", "@in.json"]) == 0
    assert json.loads(service.asked[0][1])["input"] == [1, 2]


@pytest.mark.parametrize("text", ["{", "NaN", "@missing.json", "not json"])
def test_input_that_is_no_json_is_a_usage_error_and_sends_nothing(
    service: type[Service], capsys: Printed, text: str
) -> None:
    assert main(["submit", "tiny", "--input", text]) == 2
    assert "--input" in capsys.readouterr().err
    assert service.asked == []


def a_batch(*results: dict[str, Any]) -> tuple[int, Any]:
    return 200, {"results": list(results)}


def refused(status: int, **problem: Any) -> dict[str, Any]:
    return {"status": status, "problem": {"title": "No", "detail": "It is so.", "errors": [], **problem}}


def test_a_batch_prints_the_ids_of_its_runs_in_order(service: type[Service], tmp_path: Path, capsys: Printed) -> None:
    (tmp_path / "runs.jsonl").write_text('{"input": 1}\n\n{"workflow": "other", "tags": {"a": "b"}}\n')
    service.answers["POST /v1/runs/batch"] = a_batch(*({"status": 202, "run": {"id": name}} for name in ("r1", "r2")))
    assert main(["submit", "tiny", "--batch", "runs.jsonl"]) == 0
    assert capsys.readouterr().out == "r1\nr2\n"
    runs = [{"workflow": "tiny", "input": 1}, {"workflow": "other", "tags": {"a": "b"}}]
    assert json.loads(service.asked[0][1]) == {"runs": runs}


@pytest.mark.parametrize(("statuses", "exit_status"), [((404, 422), 2), ((404, 429), 3), ((429, 503), 4)])
def test_a_batch_tells_which_lines_were_refused_and_why(
    service: type[Service],
    tmp_path: Path,
    capsys: Printed,
    monkeypatch: pytest.MonkeyPatch,
    statuses: tuple[int, int],
    exit_status: int,
) -> None:
    monkeypatch.setattr("fanfold.commands.output.RETRY_SECONDS", 0)
    (tmp_path / "runs.jsonl").write_text("{}\n" * 3)
    errors = [{"pointer": "/workflow", "detail": "Field required"}]
    bad = [refused(statuses[0]), refused(statuses[1], errors=errors)]
    service.answers["POST /v1/runs/batch"] = a_batch({"status": 202, "run": {"id": "r1"}}, *bad)
    assert main(["submit", "--batch", "runs.jsonl"]) == exit_status
    told = capsys.readouterr()
    assert told.out == "r1\n"
    assert told.err.splitlines() == [
        f"line 2: No: It is so. (HTTP {statuses[0]})",
        f"line 3: No: /workflow: Field required (HTTP {statuses[1]})",
    ]
    assert main(["submit", "--batch", "runs.jsonl", "--json"]) == exit_status
    assert len(json.loads(capsys.readouterr().out)) == 3


@pytest.mark.parametrize("text", ["{", "[]", '"run"', "{}\nNaN", "\xff"])
def test_a_batch_file_with_a_line_that_is_no_run_sends_nothing(
    service: type[Service], tmp_path: Path, capsys: Printed, text: str
) -> None:
    (tmp_path / "runs.jsonl").write_bytes(text.encode("latin-1"))
    assert main(["submit", "--batch", "runs.jsonl"]) == 2
    assert "--batch" in capsys.readouterr().err
    assert service.asked == []


@pytest.mark.parametrize(
    "more",
    [["--input", "1"], ["--lane", "high"], ["--tag", "a=b"], ["--delay", "1s"], ["--wait"], ["--batch", "no.jsonl"]],
)
def test_a_batch_takes_no_option_that_is_one_runs(service: type[Service], tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "runs.jsonl").write_text("{}\n")
    assert main(["submit", "--batch", "runs.jsonl", *more]) == 2
    assert service.asked == []


def test_submit_wait_shows_the_steps_and_the_result(service: type[Service], capsys: Printed) -> None:
    assert main(["submit", "tiny", "--wait"]) == 0
    out = capsys.readouterr().out
    assert "hello" in out
    assert "greeting" in out


def test_submit_wait_of_a_run_that_fails_exits_with_1(service: type[Service], capsys: Printed) -> None:
    fault = {"type": "Fail", "message": "no such luck"}
    service.answers["GET /v1/runs/r1"] = (200, {**RUN, "status": "failed", "reason": "step_failed", "error": fault})
    assert main(["submit", "tiny", "--wait"]) == 1
    assert "no such luck" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["submit", "tiny"], ["show", "r1"]])
def test_a_wait_that_is_interrupted_says_that_the_run_goes_on(
    service: type[Service], capsys: Printed, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("fanfold.client.sync_client.Client.wait", interrupted)
    assert main([*command, "--wait", "--json"]) == 130
    told = capsys.readouterr()
    assert told.out == ""
    assert "Run r1 goes on: fanfold show r1 --wait" in told.err


def test_submit_wait_json_prints_the_run_alone(service: type[Service], capsys: Printed) -> None:
    assert main(["submit", "tiny", "--wait", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == RUN


def test_a_refusal_exits_with_3_and_says_when_to_come_back(service: type[Service], capsys: Printed) -> None:
    service.answers["POST /v1/runs"] = (429, {"type": "queue-full", "title": "Full", "detail": "No place is free."})
    assert main(["submit", "tiny"]) == 3
    assert capsys.readouterr().err == "Refused: No place is free. (again in 60 s)\n"


def test_an_unknown_run_exits_with_2(service: type[Service], capsys: Printed) -> None:
    assert main(["show", "r9"]) == 2
    assert "r9" in capsys.readouterr().err


def test_nobody_there_exits_with_4(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setenv("FANFOLD_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("fanfold.commands.output.RETRY_SECONDS", 0.1)
    assert main(["queues"]) == 4
    assert capsys.readouterr().err.startswith("Not reachable: ")


def test_neither_a_url_nor_a_stack_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Printed
) -> None:
    (tmp_path / ".fanfold").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FANFOLD_URL", raising=False)
    assert main(["runs"]) == 2
    assert "fanfold up" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["frobnicate"], ["submit"], ["runs", "--limit", "0"], ["up", "--workers", "x"]])
def test_wrong_words_are_usage_errors(arguments: list[str], service: type[Service]) -> None:
    assert main(arguments) == 2


def test_apply_prints_each_name_and_version(service: type[Service], tmp_path: Path, capsys: Printed) -> None:
    (tmp_path / "tiny.yaml").write_text("name: tiny\nsteps: {}\n")
    assert main(["apply", "tiny.yaml"]) == 0
    assert capsys.readouterr().out == "tiny  sha256:0\n"
    assert main(["apply", "tiny.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "tiny"


def test_apply_of_a_missing_file_or_a_nameless_document_is_a_usage_error(
    service: type[Service], tmp_path: Path, capsys: Printed
) -> None:
    (tmp_path / "nameless.yaml").write_text("steps: {}\n")
    assert main(["apply", "missing.yaml"]) == 2
    assert main(["apply", "nameless.yaml"]) == 2
    assert "name" in capsys.readouterr().err
    assert service.asked == []


def test_apply_names_the_file_and_gives_each_of_several_problems_a_line(
    service: type[Service], tmp_path: Path, capsys: Printed
) -> None:
    (tmp_path / "tiny.yaml").write_text("name: tiny\nsteps: {}\n")
    errors = [{"pointer": "/steps/a/task", "detail": "there is no task"}, {"pointer": "/output", "detail": "no step"}]
    problem = {"title": "The workflow is invalid", "detail": "/steps/a/task: …", "errors": errors}
    service.answers["PUT /v1/workflows/tiny"] = (422, problem)
    assert main(["apply", "tiny.yaml"]) == 2
    told = "tiny.yaml: The workflow is invalid (HTTP 422):\n  /steps/a/task: there is no task\n  /output: no step\n"
    assert capsys.readouterr().err == told


def test_apply_of_what_is_no_yaml_says_in_one_line_where_it_is_wrong(
    service: type[Service], tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "broken.yaml").write_text("name: [\n")
    assert main(["apply", "broken.yaml"]) == 2
    assert "broken.yaml: the document is not YAML: line 2, column 1: while parsing" in capsys.readouterr().err


def test_an_input_that_names_a_file_without_the_at_sign_is_told_of_it(
    service: type[Service], tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "in.json").write_text("{}")
    assert main(["submit", "tiny", "--input", "in.json"]) == 2
    assert "@in.json is the file" in capsys.readouterr().err
    assert main(["submit", "tiny", "--input", "no" * 3000]) == 2


def test_runs_lists_ids_whole(service: type[Service], capsys: Printed) -> None:
    long_id = "r" + "x" * 60
    service.answers["GET /v1/runs"] = (200, {"runs": [{**RUN, "id": long_id}], "next_cursor": None})
    assert main(["runs", "--status", "succeeded"]) == 0
    assert long_id in capsys.readouterr().out
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["id"] == long_id


def test_events_are_one_a_line_and_with_json_one_object_a_line(service: type[Service], capsys: Printed) -> None:
    assert main(["events", "r1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert "hello #2" in lines[1]
    assert main(["events", "r1", "--json", "--follow"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == EVENTS


def test_the_local_stacks_file_is_found_from_a_folder_below(
    service: type[Service], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Printed
) -> None:
    url = local.target({"FANFOLD_URL": "http://x"}, tmp_path)[0]
    assert url == "http://x"
    stack = LocalStack(
        api_url="http://127.0.0.1:1/api", token="ff_local", endpoint="http://127.0.0.1:1", region="us-east-1",
        table="t", bucket="b", stack="fanfold-local", ledger="/l",
    )  # fmt: skip
    local.write(tmp_path / ".fanfold", stack)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert local.target({}, below) == ("http://127.0.0.1:1/api", "ff_local")
    assert (tmp_path / ".fanfold" / "local.json").stat().st_mode & 0o077 == 0


def test_a_local_stack_that_does_not_answer_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Printed
) -> None:
    stack = LocalStack(
        api_url="http://127.0.0.1:9/api", token="ff_local", endpoint="http://127.0.0.1:9", region="us-east-1",
        table="t", bucket="b", stack="fanfold-local", ledger="/l",
    )  # fmt: skip
    local.write(tmp_path / ".fanfold", stack)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FANFOLD_URL", raising=False)
    monkeypatch.setattr("fanfold.commands.output.RETRY_SECONDS", 0.1)
    assert main(["runs"]) == 4
    assert "`fanfold up`" in capsys.readouterr().err


def test_a_worker_without_a_deployment_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Printed
) -> None:
    (tmp_path / ".fanfold").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FANFOLD_TABLE", raising=False)
    assert main(["worker"]) == 2
    assert "fanfold up" in capsys.readouterr().err


def test_a_token_for_a_lane_that_no_class_has_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Printed
) -> None:
    stack = LocalStack(
        api_url="http://127.0.0.1:1/api", token="ff_local", endpoint="http://127.0.0.1:1", region="us-east-1",
        table="t", bucket="b", stack="fanfold-local", ledger="/l", env={"FANFOLD_TABLE": "t"},
    )  # fmt: skip
    local.write(tmp_path / ".fanfold", stack)
    monkeypatch.chdir(tmp_path)
    assert main(["token", "create", "--max-lane", "hgih"]) == 2
    assert capsys.readouterr().err == "No class has a lane 'hgih'; there are: normal.\n"


@pytest.fixture
def local_stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stack in the project's folder whose table takes every token."""
    stack = LocalStack(
        api_url="http://127.0.0.1:1/api", token="ff_local", endpoint="http://127.0.0.1:1", region="us-east-1",
        table="t", bucket="b", stack="fanfold-local", ledger="/l", env={"FANFOLD_TABLE": "t"},
    )  # fmt: skip
    local.write(tmp_path / ".fanfold", stack)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tokens, "_run", lambda environ, use: None)


@pytest.mark.usefixtures("local_stack")
def test_a_token_expires_when_it_is_told_to_and_never_by_itself(capsys: Printed) -> None:
    def days(*arguments: str) -> float | None:
        assert main(["token", "create", "--json", *arguments]) == 0
        made = json.loads(capsys.readouterr().out)
        if made["expires_at"] is None:
            return None
        lives = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
        return lives / timedelta(days=1)

    assert (days(), days("--expires", "90d"), days("--expires", "12h")) == (None, 90, 0.5)


@pytest.mark.usefixtures("local_stack")
@pytest.mark.parametrize("expires", ["90", "soon", "0d", "366d", "-1d", ""])
def test_a_token_that_expires_at_no_time_is_a_usage_error(capsys: Printed, expires: str) -> None:
    assert main(["token", "create", f"--expires={expires}"]) == 2
    assert capsys.readouterr().err.startswith("a duration is ")


@pytest.mark.usefixtures("local_stack")
def test_the_list_of_tokens_says_when_each_expires(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    ends = a_token(1, expires_at=datetime(2027, 3, 1, tzinfo=UTC))
    monkeypatch.setattr(tokens, "_run", lambda environ, use: [ends, a_token(2)])
    assert main(["token", "list"]) == 0
    title, first, second = capsys.readouterr().out.splitlines()
    assert "expires" in title
    assert "2027-03-01" in first
    assert "never" in second


def test_down_where_nothing_is_up_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Printed) -> None:
    (tmp_path / ".fanfold").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    assert main(["down", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"stopped": False}


def test_down_does_not_claim_to_have_stopped_what_is_in_somebody_elses_emulator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Printed
) -> None:
    known = LocalStack(
        api_url="http://127.0.0.1:9/api", token="ff_local", endpoint="http://127.0.0.1:9", region="us-east-1",
        table="t", bucket="b", stack="fanfold-local", ledger="/l",
    )  # fmt: skip
    local.write(tmp_path / ".fanfold", known)
    monkeypatch.chdir(tmp_path)
    assert main(["down"]) == 0
    assert "stays in the emulator at http://127.0.0.1:9" in capsys.readouterr().out
    assert local.read(tmp_path / ".fanfold") is None


def test_down_removes_a_broken_file_that_stops_every_other_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Printed
) -> None:
    (tmp_path / ".fanfold").mkdir(mode=0o700)
    (tmp_path / ".fanfold" / "local.json").touch(mode=0o600)
    (tmp_path / ".fanfold" / "local.json").write_text("{broken")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FANFOLD_URL", raising=False)
    assert main(["runs"]) == 2
    assert main(["down"]) == 0
    assert not (tmp_path / ".fanfold" / "local.json").exists()
