"""How the tests find a Python for LocalStack, and what they do with a LocalStack that does not come up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.localstack import LOCK, VERSION, Missing, find_python, localstack


def python_in(folder: Path, text: str = "") -> str:
    """A file that is called as an interpreter is."""
    folder.mkdir(parents=True)
    python = folder / "python3.13"
    python.write_text(text)
    python.chmod(0o755)
    return str(python)


def only(*right: str) -> Callable[[str], bool]:
    """Whether a path is of a Python that runs."""
    return lambda python: python in right


def test_a_python_in_the_path_is_taken_first(tmp_path: Path) -> None:
    first, _ = python_in(tmp_path / "bin"), python_in(tmp_path / ".pyenv/versions/3.13.0/bin")
    assert find_python({"PATH": str(tmp_path / "bin")}, tmp_path, lambda _: True) == first


def test_a_shim_that_refuses_is_passed_over_for_the_python_behind_it(tmp_path: Path) -> None:
    python_in(tmp_path / ".pyenv/shims")
    behind = python_in(tmp_path / ".pyenv/versions/3.13.0/bin")
    assert find_python({"PATH": str(tmp_path / ".pyenv/shims")}, tmp_path, only(behind)) == behind


@pytest.mark.parametrize("name", ["PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"])
def test_pythons_of_pyenv_and_uv_are_found_where_they_were_put(tmp_path: Path, name: str) -> None:
    inside = "versions/3.13.2/bin" if name == "PYENV_ROOT" else "cpython-3.13.2-linux-x86_64-gnu/bin"
    there = python_in(tmp_path / "elsewhere" / inside)
    assert find_python({name: str(tmp_path / "elsewhere")}, tmp_path / "home", only(there)) == there


def test_where_there_is_none_a_sentence_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Missing, match=r"LocalStack 4\.14\.0 needs Python 3\.13.*`uv python install 3\.13`"):
        find_python({"PATH": str(tmp_path)}, tmp_path, lambda _: True)


def test_a_python_that_was_named_is_the_one_or_none_is(tmp_path: Path) -> None:
    python_in(tmp_path / "bin")
    environ = {"LOCALSTACK_PYTHON": "/named/python", "PATH": str(tmp_path / "bin")}
    assert find_python(environ, tmp_path, lambda _: True) == "/named/python"
    with pytest.raises(Missing, match="/named/python, which is no Python"):
        find_python(environ, tmp_path, lambda python: python != "/named/python")


def test_the_lock_holds_the_release_by_hash_and_names_no_index() -> None:
    text = LOCK.read_text()
    assert f"\nlocalstack-core=={VERSION} \\\n" in text
    assert "://" not in text
    pinned = [line for line in text.splitlines() if "==" in line and not line.startswith(("#", " "))]
    assert all(line.endswith("\\") for line in pinned), "without hashes"


def test_one_that_ends_at_its_start_is_told_with_what_it_said_last(tmp_path: Path) -> None:
    python = python_in(tmp_path / "bin", "#!/bin/sh\necho it broke\nexit 3\n")
    with pytest.raises(RuntimeError, match=r"(?s)exit status 3.*it broke"), localstack(Path(python)):
        raise AssertionError("it did not come up")
