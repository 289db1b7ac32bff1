"""What docs/client.md prints is what happens, on a deployed stack."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fanfold.local.local_stack import LocalStack

pytestmark = pytest.mark.emulator

TEXT = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")


def test_every_block_runs_and_prints_what_the_comment_beside_it_says(
    stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FANFOLD_URL", stack.api_url)
    monkeypatch.setenv("FANFOLD_TOKEN", stack.token)
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    printed: list[str] = []

    def write(*values: Any) -> None:
        printed.append(" ".join(map(str, values)))

    names: dict[str, Any] = {"print": write}
    for block in blocks:
        exec(compile(block, "docs/client.md", "exec"), names)
    said = re.findall(r"print\(.*\)  # (.*)$", "\n".join(blocks), re.MULTILINE)
    assert printed == [line for comment in said for line in comment.split(" / ")]
