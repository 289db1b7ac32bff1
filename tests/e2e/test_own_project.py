"""A project of one's own, from the wheel: made, tested, served, deployed, in an environment without this checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.integration.conftest import free_port
from tests.support.wheel import ROOT, built

pytestmark = pytest.mark.emulator

PACKAGE = "humanize"
"""A package that Fanfold does not have."""

TASK = """
import humanize

from fanfold import task


@task("mine.size")
def size(given):
    print("a task speaks")
    return humanize.naturalsize(given["bytes"])
"""
FLOW = """
name: size
steps:
  tell: {task: mine.size, input: "${input}"}
output: "${steps.tell.output}"
"""


class Own:
    """A project in a folder of its own, and the environment that it is worked on in."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.wheel = wheel
        self._bin = folder / "venv" / "bin"
        self._environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FANFOLD_", "AWS_", "PYTHON", "VIRTUAL_ENV", "UV_"))
        }
        self._environ |= {"PATH": f"{self._bin}:{os.environ['PATH']}", "PYTHONWARNINGS": "default"}
        self.folder = folder / "mine"
        uv = find_uv_bin()
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(folder / "venv")], check=True)
        subprocess.run(
            [
                *(uv, "pip", "install", "-q", "--python", str(self._bin / "python")),
                *("-c", str(constraints(folder)), f"fanfold[local] @ {wheel.as_uri()}", "pytest", PACKAGE),
            ],
            check=True,
        )
        self.run("fanfold", "init", str(self.folder), cwd=folder)

    def run(self, *command: str, cwd: Path | None = None, fails: bool = False) -> str:
        done = subprocess.run(
            [str(self._bin / command[0]) if (self._bin / command[0]).exists() else command[0], *command[1:]],
            cwd=cwd or self.folder,
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr if fails else done.stdout

    def serve(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self._bin / "fanfold"), *command],
            cwd=self.folder,
            env=self._environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def write(self, path: str, text: str) -> None:
        (self.folder / path).write_text(text)

    def sized(self) -> str:
        told = self.run("fanfold", "submit", "size", "--input", '{"bytes": 3000000}', "--wait", "--json")
        output: str = json.loads(told)["output"]
        return output


def constraints(folder: Path) -> Path:
    """The versions that this project is tested with."""
    pins = [line for line in (ROOT / "requirements-dev.lock").read_text().splitlines() if "==" in line]
    path = folder / "constraints.txt"
    path.write_text("\n".join(pin.rstrip(" \\") for pin in pins if not pin.startswith(" ")) + "\n")
    return path


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Own:
    folder = tmp_path_factory.mktemp("outside")
    made = Own(folder, built(folder))
    made.write("functions/tasks/mine.py", TASK)
    made.write("workflows/size.yaml", FLOW)
    return made


def lines_until(stream: Iterator[str], text: str) -> Sequence[str]:
    heard = []
    for line in stream:
        heard.append(line)
        if text in line:
            return heard
    raise AssertionError("".join(heard))


def test_nothing_of_this_checkout_is_on_its_path(own: Own) -> None:
    told = own.run("python", "-c", "import fanfold, sys; print(fanfold.__file__, *sys.path)", cwd=own.folder.parent)
    assert str(ROOT) not in told


def test_its_tests_pass(own: Own) -> None:
    assert "2 passed" in own.run("python", "-m", "pytest", "-q")


def test_it_is_served_with_a_package_of_its_own(own: Own) -> None:
    dev = own.serve("dev", "--port", "0")
    try:
        assert dev.stderr is not None
        heard = lines_until(dev.stderr, "Workflows")
        assert any("greeting.compose, mine.size" in line for line in heard)
        assert own.sized() == "3.0 MB"
    finally:
        dev.terminate()
        dev.communicate(timeout=60)
    assert dev.returncode == 0


def test_it_is_deployed_with_its_own_packages_to_an_emulator_and_synthesised_for_an_account(own: Own) -> None:
    said = own.run("fanfold", "up", "--port", str(free_port()), fails=True)
    assert "fanfold lock" in said, "without a lock nothing is deployed"
    declared = (own.folder / "pyproject.toml").read_text()
    own.write("pyproject.toml", declared.replace('"fanfold[service]"', f'"fanfold[service]", "{PACKAGE}"'))
    own.run("fanfold", "lock")
    pinned = (own.folder / "requirements.lock").read_text()
    assert f"{PACKAGE}==" in pinned
    assert "\nfanfold" not in pinned
    assert "://" not in pinned
    try:
        own.run("fanfold", "up", "--port", str(free_port()))
        assert own.sized() == "3.0 MB"
    finally:
        own.run("fanfold", "down")
    own.run("node_modules/.bin/cdk", "synth", "--quiet", "-c", "stage=prod", "-c", "alarm_email=ops@example.org")
    template = json.loads((own.folder / "cdk.out" / "mine-prod.template.json").read_text())
    assert {"AWS::DynamoDB::Table", "AWS::StepFunctions::StateMachine"} <= {
        each["Type"] for each in template["Resources"].values()
    }
    assert list((own.folder / "cdk.out").glob(f"asset.*/python/{PACKAGE}/__init__.py")), "it is in the layer"
    assert list((own.folder / "cdk.out").glob("asset.*/functions/tasks/mine.py"))


def test_a_task_that_lacks_a_package_stops_the_synth_and_names_it(own: Own) -> None:
    own.write("functions/tasks/lacking.py", "import pytest\n")
    try:
        said = own.run("python", "app.py", fails=True)
    finally:
        (own.folder / "functions" / "tasks" / "lacking.py").unlink()
    assert "functions.tasks.lacking" in said
    assert "pytest" in said
