"""Modules of tasks that can't be imported: what they cost, and who is told."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import functions.tasks
from fanfold.engine.errors import NotFound
from fanfold.service import task_modules
from fanfold.service.settings import Settings
from fanfold.service.telemetry.metric_buffer import taken
from fanfold.service.telemetry.metrics import Metric
from fanfold.tasks import registry
from fanfold.tasks.registry import NotLoaded, find, names
from tests.support.http import Http, memory_services

Write = Callable[[str, str], None]

HEAD = "from fanfold.tasks.registry import task\n"
GOOD = HEAD + '@task("{name}")\ndef good(given):\n    return given\n'
FAULTS = {
    "a package that is not installed": ("import no_such_package_anywhere\n", "ModuleNotFoundError"),
    "a syntax error": ("def broken(:\n", "SyntaxError"),
    "an exception": ("raise RuntimeError('no parameter')\n", "RuntimeError"),
    "an exit": ("raise SystemExit(3)\n", "SystemExit"),
    "a name that is taken": ('@task("core.echo")\ndef again(given):\n    return given\n', "ValueError"),
    "a task that can't be called": ('@task("own.odd")\ndef odd():\n    return 1\n', "TypeError"),
}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Adds a module to `functions.tasks`, as a deployment has it that begins after that."""
    registry.load_all()
    tasks, modules = dict(registry._tasks), set(sys.modules)
    monkeypatch.setattr(functions.tasks, "__path__", [*functions.tasks.__path__, str(tmp_path)])
    monkeypatch.setattr(task_modules, "_told", set())
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    taken()

    def write(name: str, text: str) -> None:
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        importlib.invalidate_caches()
        registry._loaded = False

    yield write
    for name in set(sys.modules) - modules:
        if name.startswith("functions.tasks."):
            del sys.modules[name]
    registry._tasks.clear()
    registry._tasks.update(tasks)
    registry._broken.clear()
    registry._loaded = True


@pytest.mark.parametrize("fault", FAULTS)
def test_a_module_that_can_not_be_imported_costs_its_own_tasks_only(write: Write, fault: str) -> None:
    text, kind = FAULTS[fault]
    write("a_before", GOOD.format(name="own.before"))
    write("m_broken", GOOD.format(name="own.lost") + text)
    write("z_after", GOOD.format(name="own.after"))
    assert {"own.before", "own.after", "core.echo"} <= names()
    assert "own.lost" not in names(), "a half of a module is none"
    with pytest.raises(NotLoaded, match=rf"functions\.tasks\.m_broken: {kind}: "):
        find("own.lost")
    with pytest.raises(NotFound) as unknown:
        find("no.such")
    assert not isinstance(unknown.value, NotLoaded)


def test_a_broken_package_costs_what_is_below_it(write: Write) -> None:
    write("pack/__init__", "import no_such_package_anywhere\n")
    write("pack/inner", GOOD.format(name="own.inner"))
    with pytest.raises(NotLoaded, match=r"functions\.tasks\.pack: "):
        find("own.inner")
    assert find("core.echo")


def test_a_broken_module_takes_none_along_that_it_had_imported(write: Write) -> None:
    write("a_broken", HEAD + "import functions.tasks.sound\nraise RuntimeError\n")
    write("sound", GOOD.format(name="own.sound"))
    assert find("own.sound")


def test_a_broken_module_is_told_once_with_its_traceback(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("broken", GOOD.format(name="own.lost") + "import no_such_package_anywhere\n")
    for _ in range(3):
        task_modules.load_tasks(Settings())
    (line,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (line["level"], line["task_module"], line["tasks"]) == ("ERROR", "functions.tasks.broken", ["own.lost"])
    assert "No module named 'no_such_package_anywhere'" in line["trace"]
    assert [sum(values) for (metric, _), values in taken().items() if metric is Metric.TASKS_NOT_LOADED] == [1]


def test_a_module_that_failed_for_a_moment_is_imported_later(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(registry.time, "monotonic", lambda: now)
    tries = "import builtins\nbuiltins.own_tries = getattr(builtins, 'own_tries', 0) + 1\n"
    write("moody", GOOD.format(name="own.moody") + tries + "if builtins.own_tries < 2:\n    raise OSError('busy')\n")
    try:
        for _ in range(3):
            with pytest.raises(NotLoaded, match="busy"):
                find("own.moody")
        now += registry.RETRY_SECONDS
        assert find("own.moody")
        assert sys.modules["builtins"].own_tries == 2  # type: ignore[attr-defined]
        assert not registry.broken()
    finally:
        del sys.modules["builtins"].own_tries  # type: ignore[attr-defined]


async def test_registering_a_workflow_tells_a_task_that_is_not_loaded_from_one_there_is_not(write: Write) -> None:
    write("broken", GOOD.format(name="own.lost") + "import no_such_package_anywhere\n")
    http = Http(services=memory_services())

    async def put(task: str) -> Any:
        return await http("PUT", "/v1/workflows/one", {"name": "one", "steps": {"a": {"task": task}}})

    assert (await put("core.echo")).status == 201
    lost, unknown = await put("own.lost"), await put("no.such")
    assert (lost.status, unknown.status) == (422, 422)
    (error,) = lost.json["errors"]
    assert error["pointer"] == "/steps/a/task"
    assert "`own.lost` can't be called, its module could not be loaded: functions.tasks.broken" in error["detail"]
    assert "Traceback" not in lost.text
    assert "there is no task `no.such`" in unknown.json["errors"][0]["detail"]
