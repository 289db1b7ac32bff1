"""What `up` refuses before it starts anything, whose settings a process gets, and what a failure is told as."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fanfold.commands.command_line import main
from fanfold.local import cdk_app, deploy, emulator, local_stack, toolchain
from fanfold.local.local_stack import LocalError, LocalStack


def a_stack(*, env: dict[str, str] | None = None) -> LocalStack:
    return LocalStack(
        api_url="http://127.0.0.1:1/api",
        token="ff_local",
        endpoint="http://127.0.0.1:1",
        region="us-east-1",
        table="t",
        bucket="b",
        stack="fanfold-local",
        ledger="/l",
        env=env or {},
    )


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / ".fanfold").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    return tmp_path


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_taken_port_is_told_in_one_sentence(
    project: Path, taken_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--port", str(taken_port)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert str(taken_port) in said.err
    assert len(said.err.splitlines()) == 1
    assert not (project / ".fanfold" / "local.json").exists()


def test_a_machine_without_node_is_told_in_one_sentence(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(project))
    assert main(["up"]) == 2
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert "node" in said.err
    assert "Node 22" in said.err


@pytest.mark.parametrize("version", ["v16.20.2", "v18.20.8"])
def test_a_node_that_is_too_old_is_told_with_its_version(project: Path, version: str) -> None:
    for tool in ("node", "npm"):
        script = project / tool
        script.write_text(f"#!/bin/sh\necho {version}\n")
        script.chmod(0o755)
    with pytest.raises(LocalError, match=rf"take 22.*{version}") as told:
        toolchain.check_node({"PATH": str(project)})
    assert told.value.status == 2


def test_an_endpoint_where_nobody_answers_is_not_reachable(
    project: Path, taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "check_node", lambda environ, project: None)
    assert main(["up", "--endpoint", "http://127.0.0.1:9"]) == 4


def test_fair_queues_are_turned_off_for_an_emulator_that_refuses_them(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[cdk_app.Options] = []

    def up(options: cdk_app.Options, **_: object) -> LocalStack:
        asked.append(options)
        raise LocalError("enough")

    monkeypatch.setattr(deploy, "up", up)
    for arguments in (["up", "--no-fair-queues"], ["up"]):
        assert main(arguments) == 4
    endpoint = "http://127.0.0.1:9"
    without, shipped = (cdk_app.app_arguments(each, endpoint=endpoint, state=project) for each in asked)
    assert 'settings={"fair_queues": false}' in without
    assert not [word for word in shipped if word.startswith("settings=")]


def test_another_version_of_the_emulator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "VERSION", "0.0.1")
    with pytest.raises(LocalError, match=r"0\.0\.1"):
        emulator.check_version()


def test_somebody_elses_process_is_never_taken_for_the_emulator(tmp_path: Path) -> None:
    assert "python" in emulator.command_line(os.getpid())
    assert not emulator.is_ours(os.getpid(), 4566, tmp_path)
    assert not emulator.stop(os.getpid(), 4566, tmp_path)


def test_a_failed_command_is_told_with_its_own_complaint(tmp_path: Path) -> None:
    script = "print('fine'); print('❌ the thing broke'); print('later words'); raise SystemExit(3)"
    with pytest.raises(LocalError, match="It failed: ❌ the thing broke; see"):
        toolchain.run(
            [sys.executable, "-X", "utf8", "-c", script], {}, log=tmp_path / "log", seconds=20, failure="It failed"
        )


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    script = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    with pytest.raises(LocalError, match="not done within"):
        toolchain.run(
            [sys.executable, "-c", script], dict(os.environ), log=tmp_path / "log", seconds=1.5, failure="It failed"
        )
    pid = int((tmp_path / "log").read_text().splitlines()[-1])
    # A killed process is still to be seen until the system has taken it away.
    until = time.monotonic() + 10
    while "sleep" in emulator.command_line(pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert "sleep" not in emulator.command_line(pid)


def test_a_process_gets_the_deployments_settings_unless_its_own_environment_says_otherwise() -> None:
    environ = {"FANFOLD_LEASE_SECONDS": "9", "AWS_PROFILE": "mine", "AWS_REGION": "eu-west-1", "PATH": "/bin"}
    got = a_stack(env={"FANFOLD_LEASE_SECONDS": "5", "FANFOLD_TABLE": "t"}).environment(environ)
    assert (got["FANFOLD_LEASE_SECONDS"], got["FANFOLD_TABLE"], got["PATH"]) == ("9", "t", "/bin")
    assert (got["AWS_REGION"], got["AWS_ENDPOINT_URL"]) == ("us-east-1", "http://127.0.0.1:1")
    assert "AWS_PROFILE" not in got


def test_the_endpoint_in_the_environment_wins_over_the_files() -> None:
    assert a_stack().environment({"AWS_ENDPOINT_URL": "http://proxy:1"})["AWS_ENDPOINT_URL"] == "http://proxy:1"


def test_an_empty_endpoint_in_the_environment_does_not_lead_to_the_real_aws() -> None:
    assert a_stack().environment({"AWS_ENDPOINT_URL": ""})["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"


def test_of_the_files_environment_only_our_own_names_reach_a_process() -> None:
    foreign = {"PYTHONPATH": "/theirs", "LD_PRELOAD": "x.so", "AWS_CONFIG_FILE": "c", "HTTPS_PROXY": "p"}
    env = {"FANFOLD_TABLE": "t", **foreign}
    got = a_stack(env=env).environment({"PATH": "/bin"})
    assert {name for name in got if name not in ("PATH", "FANFOLD_TABLE")} == {
        "AWS_ENDPOINT_URL",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    }
    assert a_stack(env=env).environment({"PYTHONPATH": "/mine"})["PYTHONPATH"] == "/mine"


@pytest.mark.parametrize("environ", [{"FANFOLD_TOKEN": "ff_mine"}, {"FANFOLD_TOKEN": "ff_mine", "FANFOLD_URL": ""}])
def test_a_token_of_the_environment_never_goes_to_the_address_in_a_file(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    local_stack.write(tmp_path / ".fanfold", a_stack())
    with pytest.raises(LocalError, match="FANFOLD_TOKEN is set, but FANFOLD_URL is not") as told:
        local_stack.target(environ, tmp_path)
    assert told.value.status == 2


def test_the_token_of_a_file_never_goes_to_the_address_in_the_environment(tmp_path: Path) -> None:
    local_stack.write(tmp_path / ".fanfold", a_stack())
    assert local_stack.target({"FANFOLD_URL": "http://x"}, tmp_path) == ("http://x", None)
    assert local_stack.target({"FANFOLD_URL": "", "FANFOLD_TOKEN": ""}, tmp_path) == (
        "http://127.0.0.1:1/api",
        "ff_local",
    )


def test_a_folder_that_others_may_write_to_is_not_read(tmp_path: Path) -> None:
    state = tmp_path / ".fanfold"
    local_stack.write(state, a_stack())
    for mode, sound in ((0o755, True), (0o775, False), (0o757, False), (0o700, True)):
        state.chmod(mode)
        if sound:
            assert local_stack.target({}, tmp_path) == ("http://127.0.0.1:1/api", "ff_local")
        else:
            with pytest.raises(LocalError, match="chmod go-w") as told:
                local_stack.target({}, tmp_path)
            assert (told.value.status, str(state) in str(told.value)) == (2, True)
    (state / "local.json").chmod(0o666)
    with pytest.raises(LocalError, match="chmod go-w"):
        local_stack.read(state)


def test_a_folder_or_file_of_another_user_is_not_read_nor_written_nor_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / ".fanfold"
    local_stack.write(state, a_stack())
    monkeypatch.setattr(os, "getuid", lambda: state.stat().st_uid + 1)
    monkeypatch.setattr(toolchain, "check_node", lambda environ, project: None)
    with pytest.raises(LocalError, match="another user's"):
        local_stack.target({}, tmp_path)
    with pytest.raises(LocalError, match="another user's"):
        local_stack.write(state, a_stack())
    assert local_stack.target({"FANFOLD_URL": "http://x"}, tmp_path) == ("http://x", None)
    monkeypatch.chdir(tmp_path)
    for command in (["runs"], ["worker"], ["down"], ["up", "--port", "1"], ["token", "list"], ["doctor"]):
        assert main(command) == 2
        assert "another user's" in capsys.readouterr().err
    assert (state / "local.json").exists()


def test_the_folder_is_made_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        local_stack.write(tmp_path / ".fanfold", a_stack())
        assert local_stack.read(tmp_path / ".fanfold") == a_stack()
    finally:
        os.umask(before)
    assert (tmp_path / ".fanfold").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "change", [{"token": 5}, {"env": {"FANFOLD_TABLE": 1}}, {"env": []}, {"queues": {"model": "x"}}, {"pid": "1"}]
)
def test_a_file_with_values_of_other_kinds_is_told_as_broken(tmp_path: Path, change: dict[str, object]) -> None:
    local_stack.write(tmp_path, a_stack())
    path = tmp_path / "local.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(LocalError, match="fanfold down"):
        local_stack.read(tmp_path)


def test_the_apis_address_is_the_one_an_emulator_serves() -> None:
    stated = "https://0052daf0.execute-api.us-east-1.amazonaws.com/"
    expected = "http://127.0.0.1:4566/_aws/execute-api/0052daf0/%24default"
    assert cdk_app.local_api_url(stated, "http://127.0.0.1:4566") == expected
    rest = "http://127.0.0.1:4566/restapis/0052daf0/api/_user_request_"
    assert cdk_app.local_api_url(f"{stated}api/", "http://127.0.0.1:4566") == rest
    with pytest.raises(LocalError, match="nonsense"):
        cdk_app.local_api_url("nonsense", "http://127.0.0.1:4566")


def test_what_is_written_is_read_back_and_a_broken_file_says_what_removes_it(tmp_path: Path) -> None:
    local_stack.write(tmp_path, a_stack(env={"A": "b"}))
    assert local_stack.read(tmp_path) == a_stack(env={"A": "b"})
    (tmp_path / "local.json").write_text("[]")
    with pytest.raises(LocalError, match="fanfold down"):
        local_stack.read(tmp_path)


NPM = """#!{python}
import pathlib, shutil, time
with open({calls!r}, "a") as calls:
    calls.write("ci\\n")
modules = pathlib.Path({modules!r})
assert modules.parent == pathlib.Path.cwd()
shutil.rmtree(modules, ignore_errors=True)
time.sleep(0.2)
path = modules / ".bin/cdk"
path.parent.mkdir(parents=True)
path.touch()
"""


def test_two_that_install_at_once_take_turns_and_both_find_the_command_line(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("package.json", "package-lock.json"):
        (project / name).write_text("{}")
    calls = project / "calls"
    npm = project / "npm"
    npm.write_text(NPM.format(python=sys.executable, calls=str(calls), modules=str(project / "node_modules")))
    npm.chmod(0o755)

    def install(number: int) -> bool:
        return (
            toolchain.install_cdk({"PATH": str(project)}, project / f"{number}.log", project)
            and toolchain.cdk_path(project).exists()
        )

    with ThreadPoolExecutor(4) as pool:
        installed = list(pool.map(install, range(4)))
    assert (sorted(installed), calls.read_text()) == ([False, False, False, True], "ci\n")
    assert toolchain.cdk_path(project).exists()
