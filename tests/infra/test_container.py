"""The container recipe: what is in the image is locked, ours, and nothing else. (No Docker is needed to know that.)"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fanfold.commands.command_line import main
from tests.infra.test_bundling import PIN, locked

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "Dockerfile").read_text()
LOCK = (ROOT / "requirements-worker.lock").read_text()


def lines(word: str) -> list[str]:
    """The arguments of each of a Dockerfile's instructions of a kind."""
    return re.findall(rf"^{word} ((?:.*\\\n)*.*)", RECIPE, flags=re.M)


def test_what_is_installed_is_the_lock_by_hash_and_nothing_that_a_lock_does_not_name() -> None:
    (install,) = (run for run in lines("RUN") if "pip install" in run)

    assert "--require-hashes" in install
    assert "--no-deps" in install
    assert "-r /build/requirements-worker.lock" in install
    assert "sha256:" in LOCK
    assert "://" not in RECIPE + LOCK


def test_what_an_image_is_built_on_is_the_same_for_ever() -> None:
    stages = [line.split() for line in lines("FROM")]
    own = {words[-1] for words in stages if "AS" in words}
    bases = [image for image, *_ in stages if image not in own]

    assert bases
    assert all(re.fullmatch(r"python:3\.13[a-z-]*@sha256:[0-9a-f]{64}", image) for image in bases), bases


def test_a_container_has_the_versions_that_ship_to_lambda() -> None:
    in_container = dict(PIN.findall(LOCK))

    assert locked().items() <= in_container.items()
    assert {"typer", "rich", "boto3", "pydantic"} <= set(in_container)


def test_it_is_the_worker_run_by_nobody_in_particular_and_told_to_drain(capsys: pytest.CaptureFixture[str]) -> None:
    (entry,) = lines("ENTRYPOINT")
    *_, user = lines("USER")

    assert json.loads(entry) == ["python", "-m", "fanfold.commands.command_line", "worker"]
    assert int(user) > 0
    assert lines("STOPSIGNAL") == ["SIGTERM"]
    assert main([*json.loads(entry)[3:], "--help"]) == 0
    assert all(option in capsys.readouterr().out for option in ("--class",))


def test_only_what_the_recipe_copies_gets_to_the_builder() -> None:
    copied = {line.split()[0] for line in lines("COPY") if not line.startswith("--from")}
    sent = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}

    assert sent == copied | {"Dockerfile"}
    assert all((ROOT / name).exists() for name in copied)
