"""What the README prints is what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests.support.virtual import run
from tests.support.world import World

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(language: str) -> str:
    """The README's only block in that language."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    assert len(found) == 1
    return found[0]


def test_the_task_of_ones_own_runs_as_printed() -> None:
    code = block("python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    exec(compile(code, "functions/tasks/words.py", "exec"), {"__name__": "functions.tasks.words"})

    async def main() -> Any:
        return await World().play(yaml.safe_load(block("yaml")), {"here": "a b c", "there": "d e"})

    ended = run(main())
    assert ended.output == {"answer": "here, with 3 words"}
    assert '`{"answer": "here, with 3 words"}`' in README


def test_every_test_and_document_that_the_readme_names_exists() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(r"`(tests/[\w/.]+)`|\]\((docs/[\w/.]+)\)|`(functions/[\w/.]+\.py)`", README)
    paths = {path for groups in named for path in groups if path} - {"functions/tasks/words.py"}
    assert paths
    assert [path for path in sorted(paths) if not (root / path).exists()] == []
