"""JSON given to commands, on the line, in a file or on stdin: read as the API reads it, and told in a sentence else."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import typer

from fanfold.client.results import BatchResult
from fanfold.commands import batch
from fanfold.commands.given import json_of

BOM = b"\xef\xbb\xbf"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_byte_order_mark_is_no_part_of_the_json(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "input.json").write_bytes(BOM + b'{"a": 1}\r\n')
    assert json_of("@input.json", "--input") == {"a": 1}
    monkeypatch.setattr("sys.stdin", io.StringIO('\ufeff{"a": 1}'))
    assert json_of("@-", "--input") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        ('[{"b": {"a": 1, "a": 1}}]', "the key 'a' occurs twice"),
        ("1e400", "the number 1e400 is out of range"),
        ("-1e400", "is out of range"),
        ("NaN", "NaN is not JSON"),
        ("Infinity", "Infinity is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5_000, "integer string conversion"),
        ("", "Expecting value"),
        ("{", "Expecting"),
        ("'a'", "Expecting value"),
    ],
)
def test_what_the_api_would_refuse_is_refused_here_in_a_sentence(folder: Path, text: str, said: str) -> None:
    (folder / "input.json").write_text(text)
    for given in (text, "@input.json"):
        with pytest.raises(typer.BadParameter, match="--input is not JSON: ") as told:
            json_of(given, "--input")
        assert said in str(told.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("utf16.json", "{}".encode("utf-16"), "utf16.json is not UTF-8"),
        ("latin.json", '"ä"'.encode("latin-1"), "latin.json is not UTF-8"),
        ("missing.json", None, "missing.json: No such file"),
        ("a\0b.json", None, "embedded null"),
    ],
)
def test_a_file_that_can_not_be_read_is_told(folder: Path, name: str, content: bytes | None, said: str) -> None:
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(typer.BadParameter) as told:
        json_of(f"@{name}", "--input")
    assert said in str(told.value)
    with pytest.raises(typer.BadParameter) as told:
        batch.submit(Client(), name, workflow="tiny", key=None, json_=True)  # type: ignore[arg-type]
    assert said in str(told.value)


def test_a_file_that_is_named_without_its_sign_is_meant_as_one(folder: Path) -> None:
    (folder / "input.json").write_text("{}")
    with pytest.raises(typer.BadParameter, match=r"; @input\.json is the file"):
        json_of("input.json", "--input")


class Client:
    """Takes a batch."""

    def __init__(self) -> None:
        self.runs: list[object] = []

    def submit_many(self, runs: list[object], key: str | None) -> list[BatchResult]:
        self.runs = list(runs)
        return []


def test_the_lines_of_a_batch_are_read_alike(folder: Path) -> None:
    (folder / "runs.jsonl").write_bytes(BOM + b'{"input": 1}\r\n\r\n{"input": 2}')
    client = Client()
    batch.submit(client, "runs.jsonl", workflow="tiny", key=None, json_=True)  # type: ignore[arg-type]
    assert client.runs == [{"workflow": "tiny", "input": 1}, {"workflow": "tiny", "input": 2}]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"input": 1, "input": 2}', "line 2 is not JSON: the key 'input' occurs twice"),
        ('{"input": 1e400}', "line 2 is not JSON: the number 1e400 is out of range"),
        (json.dumps([1]), "line 2 is no run"),
    ],
)
def test_a_line_that_the_api_would_refuse_is_named(folder: Path, line: str, said: str) -> None:
    (folder / "runs.jsonl").write_text(f'{{"input": 1}}\n{line}\n')
    with pytest.raises(typer.BadParameter) as told:
        batch.submit(Client(), "runs.jsonl", workflow="tiny", key=None, json_=True)  # type: ignore[arg-type]
    assert said in str(told.value)
