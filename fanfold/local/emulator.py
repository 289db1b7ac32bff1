"""Starts, recognises and stops the embedded AWS emulator, which is a process of its own.

This module run as a program is that process. Its command line names the port and the state folder, so that a reused pid
is never mistaken for it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from fanfold.local.guard import guarded
from fanfold.local.local_stack import LocalError
from fanfold.local.turns import taking_turns

VERSION = "1.5.33"
"""The tested MiniStack version. An older one silently serialises calls and ignores ItemReader."""

HOST = "127.0.0.1"
START_SECONDS = 45.0
"""The start takes 0.3 to 4 s on an idle machine, and much longer on a busy one."""

STOP_SECONDS = 10.0


def check_version() -> None:
    """Raise `LocalError` unless the pinned emulator is installed."""
    try:
        found = importlib.metadata.version("ministack")
    except importlib.metadata.PackageNotFoundError as error:
        raise LocalError("The local stack is not installed: pip install 'fanfold[local]'.", status=2) from error
    if found != VERSION:
        raise LocalError(
            f"The local stack needs ministack {VERSION}, but {found} is installed: run `make setup`.", status=2
        )


def check_port(port: int) -> None:
    """Raise `LocalError` if the port is in use."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise LocalError(
                f"Port {port} of {HOST} can't be used ({error.strerror}): choose another with --port.", status=2
            ) from error


def start(port: int, state: Path, environ: Mapping[str, str]) -> int:
    """Start the emulator, detached, and wait until it answers; returns its pid.

    It logs to `emulator.log` in the state folder. Raises `LocalError`, after stopping a process that never answered.
    """
    check_version()
    check_port(port)
    _scratch(state).mkdir(parents=True, exist_ok=True)
    log = state / "emulator.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "fanfold.local.emulator", "--port", str(port), "--state", str(state)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(port, state, environ),
            cwd=state,
            start_new_session=True,  # it outlives this command, and its workers are in its group
        )
    try:
        _await_answer(process, port, log)
    except BaseException:
        stop(process.pid, port, state)
        process.wait(timeout=STOP_SECONDS)
        raise
    # The process outlives its parent; without this Popen warns about a running child.
    process.returncode = 0
    return process.pid


def _environment(port: int, state: Path, environ: Mapping[str, str]) -> dict[str, str]:
    # FANFOLD_ variables of the caller would reach the functions, whose settings come from the deployment.
    own = {name: value for name, value in environ.items() if not name.startswith(("FANFOLD_", "AWS_"))}
    return own | {
        "BIND_HOST": HOST,
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",  # otherwise it also uses port 8883
        "STATE_DIR": str(state / "emulator"),
        "S3_DATA_DIR": str(state / "emulator" / "s3"),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(_scratch(state)),
    }


def _scratch(state: Path) -> Path:
    """The folder into which the emulator unpacks functions; it does not clean up."""
    return state / "scratch"


def _await_answer(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise LocalError(f"The emulator ended with status {process.returncode} at its start: see {log}.")
        if answers(f"http://{HOST}:{port}"):
            return
        time.sleep(0.1)
    raise LocalError(f"The emulator gave no answer within {START_SECONDS:g} s: see {log}.")


def answers(endpoint: str) -> bool:
    """Whether an AWS emulator answers there (MiniStack and LocalStack share the address of their health)."""
    try:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy can't reach this machine
        with direct.open(f"{endpoint.rstrip('/')}/_localstack/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def runs_functions_here(endpoint: str) -> bool:
    """Whether the emulator there runs functions in this machine's own interpreter, as MiniStack does.

    Others (LocalStack) run them in containers, which have nothing but what ships.
    """
    try:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{endpoint.rstrip('/')}/_ministack/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def is_ours(pid: int, port: int, state: Path) -> bool:
    """Whether that process is the emulator started for this port and state folder, by its command line."""
    return f"fanfold.local.emulator --port {port} --state {state}" in command_line(pid)


def command_line(pid: int) -> str:
    """A process's command line, joined by spaces; empty if there is no such process."""
    if os.path.isdir("/proc/self"):  # a bare Linux image has no `ps`, macOS has no /proc
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return ""
    shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


def stop(pid: int, port: int, state: Path) -> bool:
    """Stop the emulator and its function processes. Returns whether it was running."""
    if not is_ours(pid, port, state):
        return False
    _signal_group(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline and is_ours(pid, port, state):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # the parent must reap it
        time.sleep(0.05)
    # Workers may ignore SIGTERM. The group is gone once no process is left in it.
    _signal_group(pid, signal.SIGKILL)
    shutil.rmtree(_scratch(state), ignore_errors=True)
    return True


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _be_the_emulator() -> None:
    parser = argparse.ArgumentParser(description="The embedded AWS emulator of `fanfold up`.")
    parser.add_argument("--port", required=True)
    parser.add_argument("--state", required=True)
    parser.parse_args()
    sys.argv = ["ministack"]
    emulator = importlib.import_module("ministack.app")  # no client needs it
    emulator.app = guarded(taking_turns(emulator.app))  # type: ignore[attr-defined]
    emulator.main()


if __name__ == "__main__":
    _be_the_emulator()
