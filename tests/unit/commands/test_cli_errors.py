"""How the command line says that something is wrong: one sentence, or with `--json` one object; and at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from fanfold.commands import command_line
from fanfold.commands.command_line import main
from fanfold.service.version import VERSION

Printed = pytest.CaptureFixture[str]


class Server(BaseHTTPRequestHandler):
    """Answers everything with one answer, and counts what it was asked."""

    answer: ClassVar[tuple[int, bytes]] = (200, b"")
    headers_sent: ClassVar[dict[str, str]] = {}
    asked: ClassVar[int] = 0

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        Server.asked += 1
        status, body = self.answer
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        for name, value in self.headers_sent.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the tests look at what the command prints."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def server(address: str, monkeypatch: pytest.MonkeyPatch) -> type[Server]:
    monkeypatch.setenv("FANFOLD_URL", address)
    monkeypatch.setenv("FANFOLD_TOKEN", "ff_token")
    Server.asked, Server.headers_sent = 0, {}
    return Server


def test_the_version_is_told(capsys: Printed) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fanfold {VERSION}\n"


@pytest.mark.parametrize(
    "url",
    ["garbage", "example.org/api", "ftp://example.org", "https://", "http://a b", "http://[", "http://a:b/", "h\n"],
)
@pytest.mark.parametrize("command", [["runs"], ["submit", "tiny"], ["events", "r1", "--follow"]])
def test_what_is_no_address_is_told_at_once_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed, url: str, command: list[str]
) -> None:
    monkeypatch.setenv("FANFOLD_URL", url)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it waits for what will never be there"))
    assert main(command) == 2
    told = capsys.readouterr().err
    assert told.startswith("FANFOLD_URL: ")
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    "command", [["submit", "tiny"], ["redrive", "r1"], ["signal", "r1", "go"], ["fork", "r1", "--from", "a"]]
)
def test_a_key_that_no_request_can_carry_is_told_before_anything_is_asked(
    server: type[Server], capsys: Printed, command: list[str]
) -> None:
    assert main([*command, "--key", "schlüssel", "--json"]) == 2
    assert "1–255 visible ASCII" in capsys.readouterr().err
    assert server.asked == 0


def test_what_is_no_token_is_told_at_once(
    server: type[Server], monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setenv("FANFOLD_TOKEN", "ff_töken")
    assert main(["runs"]) == 2
    assert capsys.readouterr().err.startswith("FANFOLD_TOKEN: ")
    assert server.asked == 0


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"<html>hello</html>"),
        (200, b""),
        (200, b"[]"),
        (200, b'{"hello": "world"}'),
        (404, b"<html>nothing here</html>"),
        (404, b'{"message": "Not Found"}'),
        (501, b"<html>Unsupported method</html>"),
    ],
)
@pytest.mark.parametrize("command", [["runs"], ["submit", "tiny"], ["cancel", "r1"]])
def test_a_server_that_is_not_fanfold_is_told_with_its_address(
    server: type[Server], address: str, capsys: Printed, command: list[str], answer: tuple[int, bytes]
) -> None:
    server.answer = answer
    assert main(command) == 4
    told = capsys.readouterr().err
    assert told.startswith("Not a Fanfold API: ")
    assert f"is {address}/ a Fanfold API's address?" in told
    assert server.asked == 1


def test_with_json_a_problem_is_told_as_the_api_answered_it(server: type[Server], capsys: Printed) -> None:
    problem = {
        "type": "invalid-document",
        "title": "The request is invalid",
        "status": 422,
        "detail": "/lane: no",
        "errors": [{"pointer": "/lane", "detail": "no"}],
        "parameter": "lane",
    }
    server.answer = 422, json.dumps(problem).encode()
    assert main(["submit", "tiny", "--json"]) == 2
    told = capsys.readouterr()
    assert (told.out, json.loads(told.err)) == ("", problem)


def test_with_json_a_refusal_says_when_to_come_back(server: type[Server], capsys: Printed) -> None:
    server.answer = 429, b'{"type": "queue-full", "title": "The queue is full", "status": 429, "detail": "no"}'
    server.headers_sent = {"retry-after": "60"}
    assert main(["submit", "tiny", "--json"]) == 3
    told = json.loads(capsys.readouterr().err)
    assert (told["type"], told["retry_after"]) == ("queue-full", 60)


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (["frobnicate", "--json"], "usage"),
        (["runs", "--limit", "0", "--json"], "usage"),
        (["submit", "tiny", "--input", "{", "--json"], "usage"),
        (["submit", "--json"], "usage"),
    ],
)
def test_with_json_wrong_words_are_an_object_too(
    server: type[Server], capsys: Printed, command: list[str], kind: str
) -> None:
    assert main(command) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert (json.loads(told.err)["type"], server.asked) == (kind, 0)


def test_with_json_an_address_that_is_none_and_a_server_that_is_another_are_objects_too(
    server: type[Server], monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    server.answer = 200, b"hello"
    assert main(["runs", "--json"]) == 4
    assert json.loads(capsys.readouterr().err)["type"] == "not-fanfold"
    monkeypatch.setenv("FANFOLD_URL", "garbage")
    assert main(["runs", "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["type"] == "usage"
    monkeypatch.setenv("FANFOLD_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("fanfold.commands.output.RETRY_SECONDS", 0)
    assert main(["runs", "--json"]) == 4
    assert json.loads(capsys.readouterr().err)["type"] == "not-reachable"


def test_with_json_the_exit_status_of_a_command_is_what_it_is_without(server: type[Server], capsys: Printed) -> None:
    run = {"id": "r1", "status": "failed", "reason": None, "error": None, "steps": {}, "output": None}
    server.answer = 200, json.dumps(run).encode()
    assert main(["show", "r1", "--wait", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == run


def test_a_command_that_needs_an_extra_says_which(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ModuleNotFoundError("No module named 'boto3'", name="boto3")

    monkeypatch.setattr(command_line, "app", fail)
    assert main(["worker"]) == 2
    assert "pip install 'fanfold[service]'" in capsys.readouterr().err
