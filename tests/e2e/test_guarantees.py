"""What docs/guarantees.md prints is what happens, and what it names exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fanfold.commands.command_line import main
from fanfold.tasks import registry

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "guarantees.md").read_text()
INPUT = json.dumps({"order": "o1", "cents": 1200})


def blocks(language: str) -> list[str]:
    """The document's blocks in that language ("": in none), in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```\n", DOC, flags=re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


BAD, FIXED, AS_A_TEST = blocks("python")
(ORDER,) = blocks("yaml")
FOUND, NOTHING_FOUND = blocks("")


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with the workflow; tasks registered in the test are gone after it."""
    registry.load_all()
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))
    (tmp_path / "order.yaml").write_text(ORDER)
    return tmp_path


def define(code: str) -> None:
    """Registers the tasks of a block."""
    exec(compile(code, "functions/tasks/shop.py", "exec"), {"__name__": "functions.tasks.shop"})


def test_the_badly_written_tasks_are_found_as_printed(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    define(BAD)
    assert main(["explore", str(shop / "order.yaml"), "--input", INPUT]) == 1
    shown = capsys.readouterr().out
    for line in FOUND.splitlines():
        assert line.strip() in shown


def test_the_fixed_ones_end_right_everywhere_in_pairs_too(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    define(FIXED)
    assert main(["explore", str(shop / "order.yaml"), "--input", INPUT]) == 0
    assert NOTHING_FOUND.strip() in capsys.readouterr().out


@pytest.mark.parametrize(("code", "status"), [(BAD, 1), (FIXED, 0)])
def test_the_printed_test_finds_the_bug_and_passes_without_it(shop: Path, code: str, status: int) -> None:
    (shop / "conftest.py").write_text(f'pytest_plugins = ["fanfold.testing.pytest_plugin"]\n{code}')
    (shop / "test_order.py").write_text(AS_A_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    ended = subprocess.run(command, cwd=shop, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert ("step charge: effect 'charge' happened 2 times" in ended.stdout) == (status == 1)


def test_what_the_document_says_of_a_conftest_is_what_the_printed_test_has() -> None:
    assert '`pytest_plugins = ["fanfold.testing.pytest_plugin"]`' in DOC


def test_every_test_and_command_it_names_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/.]+)`", DOC))
    assert len(named) > 15
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make (\w+)", DOC):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
