"""What a handler loads at cold start, and that loading it does nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fanfold.service.version import VERSION
from loadtest.coldstarts import MODULES

ROOT = Path(__file__).parents[2]

HEAVY = ("pydantic", "boto3", "botocore.session", "aws_xray_sdk", "yaml", "requests", "httpx", "rich", "typer", "moto")
"""Costly modules: pydantic alone is 60–120 ms of a cold start. boto3 is loaded by the first call, not by an import."""

BUDGETS = {
    "functions.api": {"pydantic"},
    "functions.watch": {"pydantic"},
    "functions.authorizer": set(),
    "functions.worker": set(),
    "functions.fanout": set(),
    "functions.deadletter": set(),
    "functions.sweeper": set(),
    "fanfold.engine.rules.decide": set(),
    "fanfold.client.sync_client": {"httpx"},
}
"""The heavy modules each entry point may load."""


@pytest.mark.parametrize("module", sorted(BUDGETS))
def test_an_entry_point_loads_no_heavy_module_beyond_its_budget(module: str) -> None:
    code = f"import {module}, sys; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) <= BUDGETS[module]


@pytest.mark.parametrize("handler", sorted(MODULES))
def test_a_handler_loads_no_more_modules_than_its_budget(handler: str) -> None:
    code = f"import sys; before = set(sys.modules); import functions.{handler}; print(len(set(sys.modules) - before))"
    assert int(python(code)) <= MODULES[handler]


def test_the_first_call_of_aws_loads_botocore_and_nothing_of_boto3() -> None:
    code = (
        "import os, sys\n"
        "os.environ |= {'AWS_ACCESS_KEY_ID': 'a', 'AWS_SECRET_ACCESS_KEY': 'b', 'AWS_DEFAULT_REGION': 'eu-central-1'}\n"
        "from fanfold.adapters.aws.calls import Client\n"
        "from fanfold.service.aws_clients import Aws\n"
        "names = [Aws().client(each).meta.service_model.service_name for each in Client]\n"
        "print(*sorted(set(names)), *[name for name in ('boto3', 's3transfer') if name in sys.modules])"
    )
    assert python(code).split() == ["dynamodb", "s3", "sqs", "stepfunctions"]


@pytest.mark.parametrize("module", sorted(BUDGETS))
def test_importing_an_entry_point_says_nothing_opens_nothing_and_needs_no_environment(module: str) -> None:
    code = (
        "import socket, sys\n"
        "def refuse(*_, **__): raise AssertionError('a connection at import')\n"
        "socket.socket.connect = refuse\n"
        f"import {module}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"HOME": "/nonexistent"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_engine_asks_no_clock_and_no_chance() -> None:
    """Time and randomness arrive as arguments; the import contracts forbid the modules, this the methods."""
    import ast
    from pathlib import Path

    import fanfold.engine

    found = []
    for path in Path(fanfold.engine.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("now", "utcnow", "today")
                and isinstance(node.value, ast.Name)
                and node.value.id in ("datetime", "date")
            ):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []


# --- the client ---------------------------------------------------------------------------------------------------

CLIENT_MODULES = 60
"""Modules that `import fanfold` may load beyond what Python has at its start: 40 ms here; asyncio would triple it."""

ONLY_IN_EXTRAS = (
    "boto3", "botocore", "aws_cdk", "constructs", "cdk_nag", "pydantic", "aws_lambda_powertools", "jmespath",
    "ministack",
)  # fmt: skip


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_the_client_loads_few_modules_and_neither_asyncio_nor_httpx() -> None:
    code = "import sys; before = set(sys.modules); import fanfold; print(*(set(sys.modules) - before))"
    loaded = python(code).split()
    assert not {"asyncio", "httpx", "yaml", "ssl"} & set(loaded)
    assert len(loaded) <= CLIENT_MODULES


def test_the_client_and_its_command_line_work_without_what_only_the_extras_install() -> None:
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {ONLY_IN_EXTRAS!r}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import fanfold\n"
        "for kind in (fanfold.Client, fanfold.AsyncClient):\n"
        "    kind('https://example.org/api', 'ff_token')\n"
        "from fanfold.client import calls\n"
        "from fanfold.commands import command_line as cli\n"
        "print(calls.submit('tiny', key='k').path, cli.main(['--version']))\n"
    )
    assert python(code).split() == ["fanfold", VERSION, "v1/runs", "0"]


def test_installing_the_client_installs_nothing_of_aws() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split("[>=]", dependency)[0] for dependency in project["dependencies"]}
    assert names == {"httpx", "typer", "rich", "pyyaml"}
    assert (ROOT / "fanfold" / "py.typed").exists()


def test_no_installation_registers_a_plugin_with_another_program() -> None:
    """pytest would load one in every run, also beside the client alone, whose fixture could not work."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "entry-points" not in project


# --- the command line -----------------------------------------------------------------------------------------------

COMMANDS = (
    "init", "dev", "lock", "serve", "up", "down", "demo", "apply", "submit", "show", "runs", "events", "explore",
    "cancel", "pause", "resume", "signal", "redrive", "fork", "queues", "dashboard", "doctor", "worker", "remove",
    "token",
)  # fmt: skip

NOT_AT_A_START = ("boto3", "botocore", "aws_cdk", "ministack", "httpx", "yaml", "matplotlib", "aws_lambda_powertools")
"""What a command loads when it comes to need it. pydantic is not here: typer itself loads it to read the words."""

COMMAND_MODULES = 40
"""Modules of ours that a command's start may load: those of its own, the client's, and the output's."""


def started(*words: str) -> set[str]:
    """What is loaded once the command line has read these words."""
    code = (
        "import contextlib, io, sys\n"
        "from fanfold.commands.command_line import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()):\n    status = main({list(words)!r})\n"
        "print(status, *sys.modules)"
    )
    status, *loaded = python(code).split()
    assert status == "0"
    return set(loaded)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_start_loads_its_own_modules_and_nothing_of_aws(command: str) -> None:
    loaded = started(command, "--help")
    assert loaded.isdisjoint(NOT_AT_A_START)
    ours = {name for name in loaded if name.startswith("fanfold.")}
    assert len(ours) <= COMMAND_MODULES, sorted(ours)


def test_the_commands_that_are_there_are_those_whose_start_is_watched() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "fanfold.commands.command_line", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert re.findall(r"^│ (\w+) ", shown, re.MULTILINE)[-len(COMMANDS) :] == list(COMMANDS)
    assert started("--help").isdisjoint(NOT_AT_A_START)
    assert {"fanfold.commands.service", "fanfold.commands.stack"}.isdisjoint(started("runs", "--help"))
