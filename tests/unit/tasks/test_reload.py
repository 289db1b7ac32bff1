"""A project's modules of tasks imported anew: what changed counts, what can't be imported stays as it was."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fanfold.tasks import registry
from fanfold.tasks.registry import NotLoaded, find, names

TASK = "from fanfold import task\n{head}\n@task('{name}')\ndef act(given):\n    return {result}\n"

Write = Callable[[str, str], None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    registry.load_all()
    tasks, modules = dict(registry._tasks), registry._modules
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in [name for name, module in sys.modules.items() if registry._lies_below(module, tmp_path)]:
        del sys.modules[name]
    registry._tasks.clear()
    registry._tasks.update(tasks)
    registry._broken.clear()
    registry._modules, registry._loaded = modules, True


def write(folder: Path, name: str, result: str, *, head: str = "") -> None:
    path = folder / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(TASK.format(head=head, name=f"own.{path.stem}", result=result))


def result_of(name: str) -> object:
    return find(name).function(None)


def test_a_change_of_a_module_and_of_what_it_imports_counts(folder: Path) -> None:
    (folder / "own_numbers.py").write_text("ONE = 1\n")
    write(folder, "own_tasks/first", "own_numbers.ONE", head="import own_numbers")
    registry.use(["own_tasks"])
    assert result_of("own.first") == 1
    (folder / "own_numbers.py").write_text("ONE = 'one'\n")
    write(folder, "own_tasks/second", "2")
    assert registry.reload(folder) == ()
    assert (result_of("own.first"), result_of("own.second")) == ("one", 2)
    assert find("core.echo"), "what comes with the library is there as before"


def test_a_task_that_is_gone_from_its_module_is_gone(folder: Path) -> None:
    write(folder, "own_module", "1")
    registry.use(["own_module"])
    assert "own.own_module" in names()
    (folder / "own_module.py").write_text("")
    registry.reload(folder)
    assert "own.own_module" not in names()


@pytest.mark.parametrize("fault", ["def broken(:\n", "raise SystemExit(3)\n", "import no_such_package\n"])
def test_a_module_that_can_not_be_imported_stays_as_it_was_and_costs_no_other(folder: Path, fault: str) -> None:
    write(folder, "own_tasks/good", "1")
    write(folder, "own_tasks/bad", "1")
    registry.use(["own_tasks"])
    assert (result_of("own.good"), result_of("own.bad")) == (1, 1)
    write(folder, "own_tasks/good", "2")
    (folder / "own_tasks" / "bad.py").write_text(fault)
    (broken,) = registry.reload(folder)
    assert broken.name == "own_tasks.bad"
    assert broken.trace
    assert (result_of("own.good"), result_of("own.bad")) == (2, 1)
    write(folder, "own_tasks/bad", "3")
    assert registry.reload(folder) == ()
    assert result_of("own.bad") == 3


def test_a_traceback_shows_the_projects_own_frames_and_none_of_the_import(folder: Path) -> None:
    write(folder, "own_tasks/bad", "1", head="import own_deep")
    (folder / "own_deep.py").write_text("def sink():\n    raise RuntimeError('here')\n\nsink()\n")
    registry.use(["own_tasks"])
    (broken,) = registry.broken()
    assert broken.trace.count('File "') == 3
    assert broken.trace.count(str(folder)) == 3
    assert broken.trace.rstrip().endswith("RuntimeError: here")


def test_a_module_that_the_project_names_and_that_is_not_there_is_told(folder: Path) -> None:
    registry.use(["own_absent", "own_there"])
    write(folder, "own_there", "1")
    assert [module.name for module in registry.broken()] == ["own_absent"]
    assert result_of("own.own_there") == 1


def test_a_package_that_can_not_be_imported_is_told_and_costs_no_other(folder: Path) -> None:
    write(folder, "own_package/inner", "1")
    (folder / "own_package" / "__init__.py").write_text("raise RuntimeError('not today')\n")
    write(folder, "own_there", "1")
    registry.use(["own_package", "own_there"])
    with pytest.raises(NotLoaded, match="not today"):
        find("own.inner")
    assert result_of("own.own_there") == 1
