"""Node, npm and the pinned CDK command line: found or missed with one sentence, run without leftovers."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from fanfold.local.local_stack import CHECKOUT, LocalError

MIN_NODE = 20
"""The oldest Node that is taken: jsii, which CDK needs, gave up Node 18 in November 2025."""
NODE = 22
"""The Node to install: 20 gets no more fixes since April 2026."""

NPM_SECONDS = 300.0
CDK_SECONDS = 600.0

# npm's own defaults try for minutes before they say that there is no network.
_NPM_RETRIES = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=3000")


def check_node(environ: Mapping[str, str], project: Path = CHECKOUT) -> None:
    """Raises `LocalError` (usage) unless the project has a CDK app and Node and npm are on the PATH, new enough."""
    for name in ("cdk.json", "package.json"):
        if not (project / name).is_file():
            raise LocalError(
                f"{project} can't be deployed, for it has no {name}: `fanfold init` makes a project with one.", status=2
            )
    path = environ.get("PATH", os.defpath)
    for tool in ("node", "npm"):
        if shutil.which(tool, path=path) is None:
            raise LocalError(f"`{tool}` is not on the PATH: install Node {NODE} or newer, CDK needs it.", status=2)
    node = shutil.which("node", path=path) or "node"
    shown = subprocess.run([node, "--version"], capture_output=True, text=True, check=False, env=dict(environ))
    found = re.match(r"v(\d+)\.", shown.stdout)
    if found is None or int(found[1]) < MIN_NODE:
        said = shown.stdout.strip() or shown.stderr.strip() or "no version"
        raise LocalError(f"Node {MIN_NODE} or newer is needed (take {NODE}), `node --version` says {said}.", status=2)


def install_cdk(environ: Mapping[str, str], log: Path, project: Path = CHECKOUT) -> bool:
    """Install what the project's package-lock.json pins, unless it is there; says whether there was something to do.

    Without a lock what package.json names is installed, which writes one.

    Two that come at once take turns, since `npm ci` begins by removing what another may just be using.
    Raises `LocalError` when npm fails, which mostly means that there is no network.
    """
    locked = project / "package-lock.json"
    with (project / "package.json").open("rb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        return _install_cdk(project, locked, environ, log)


def _install_cdk(project: Path, locked: Path, environ: Mapping[str, str], log: Path) -> bool:
    modules = project / "node_modules"
    stamp = modules / ".fanfold-lock"
    wanted = hashlib.sha256(locked.read_bytes()).hexdigest() if locked.is_file() else None
    if (
        wanted is not None
        and cdk_path(project).exists()
        and stamp.is_file()
        and stamp.read_text(encoding="utf-8") == wanted
    ):
        return False
    npm = shutil.which("npm", path=environ.get("PATH", os.defpath)) or "npm"
    run(
        [npm, "install" if wanted is None else "ci", "--no-audit", "--no-fund", "--no-update-notifier", *_NPM_RETRIES],
        environ,
        log=log,
        seconds=NPM_SECONDS,
        failure="npm could not install the CDK command line (is there a network?)",
        folder=project,
    )
    stamp.write_text(wanted or hashlib.sha256(locked.read_bytes()).hexdigest(), encoding="utf-8")
    return True


def cdk_path(project: Path = CHECKOUT) -> Path:
    """Where a project's CDK command line is once installed."""
    return project / "node_modules" / ".bin" / "cdk"


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    log: Path,
    seconds: float,
    failure: str,
    folder: Path = CHECKOUT,
) -> None:
    """Run a command, by default in the checkout, its output appended to `log`.

    Raises `LocalError` (`failure`, then the command's own last complaint) when it fails or takes
    longer than `seconds`. However this ends, nothing that the command started is left running.
    """
    with log.open("ab") as output:
        output.write(f"$ {' '.join(command)}\n".encode())
        output.flush()
        begin = output.tell()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a group of its own, so that its children can be ended with it
        )
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise LocalError(f"{failure}: not done within {seconds:g} s; see {log}.") from error
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status != 0:
        raise LocalError(f"{failure}: {_complaint(log, begin)}; see {log}.")


_TELLING = (r"[A-Z]_FAILED\b", "❌", r"^[\w.]*Error: ", r"^\w+(?:\.\w+)*\.[A-Z]\w+: ", r"(?i)\w*error\b|\bfailed\b")
"""What marks the line that says what went wrong, the surest sign first."""


def _complaint(log: Path, begin: int) -> str:
    """The line that says what went wrong, as far as one can tell; else the last."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_bytes()[begin:].decode("utf-8", errors="replace"))
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    for sign in _TELLING:
        for line in lines:
            if re.search(sign, line):
                return line[:300].rstrip(".")
    return lines[-1][:300].rstrip(".") if lines else "it said nothing"
