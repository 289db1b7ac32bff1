"""The real LocalStack as a process of the test session: its SQS, S3 and Step Functions, without Docker.

Its core is a Python package, installed from `tests/localstack/requirements.lock` into an environment of its own in
`build/`, by Python 3.13: the release takes no other. DynamoDB and Lambda need what the package does not bring; the
tests have those on the embedded emulator.

As a command it makes the environment, or says why it can't: 0 it is there, 2 this machine has no Python 3.13.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.support.emulator import free_port

VERSION = "4.14.0"
"""The last release that asks for no account (February 2026)."""

PYTHON = "3.13"
SERVICES = ("sqs", "s3", "stepfunctions", "sts")
"""What is asked of it; `sts`, because Step Functions assumes the roles of its state machines."""

WANTED = os.environ.get("FANFOLD_TEST_LOCALSTACK", "") == "1"
"""Whether this session has tests for it, as `make test-localstack` asks."""

CHECKOUT = Path(__file__).parents[2]
LOCK = CHECKOUT / "tests" / "localstack" / "requirements.lock"
FOLDER = CHECKOUT / "build" / "localstack"

MOCKS = CHECKOUT / "tests" / "localstack" / "mocks.json"
"""What functions answer to its state machines, by test case: it has no Lambda."""

INSTALL_SECONDS = 600.0
START_SECONDS = 90.0
"""It takes 5 s on an idle machine, and imports a hundred packages."""
STOP_SECONDS = 10.0


class Missing(Exception):
    """This machine has no Python that LocalStack runs on; the text says what was looked for, in a sentence."""


def find_python(environ: Mapping[str, str], home: Path, runs: Callable[[str], bool]) -> str:
    """An interpreter of Python 3.13, tried by `runs`. Raises `Missing`.

    `LOCALSTACK_PYTHON` names one; else the first that runs of those in PATH, pyenv's (whose shims are in PATH, but
    refuse where another version is chosen) and uv's.
    """
    if named := environ.get("LOCALSTACK_PYTHON"):
        if runs(named):
            return named
        raise Missing(f"LOCALSTACK_PYTHON is {named}, which is no Python {PYTHON}.")
    folders = [Path(folder) for folder in environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    uv = Path(environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local" / "share" / "uv" / "python")
    found = [
        *(folder / f"python{PYTHON}" for folder in folders),
        *sorted(pyenv.glob(f"{PYTHON}*/bin/python{PYTHON}"), reverse=True),
        *sorted(uv.glob(f"cpython-{PYTHON}*/bin/python{PYTHON}"), reverse=True),
    ]
    for each in found:
        if each.exists() and runs(str(each)):
            return str(each)
    raise Missing(
        f"LocalStack {VERSION} needs Python {PYTHON}, which is not in PATH and which neither pyenv nor uv has: "
        f"`uv python install {PYTHON}` installs it, LOCALSTACK_PYTHON=… names one elsewhere."
    )


def is_right(python: str) -> bool:
    """Whether that is an interpreter of the version that is needed."""
    asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and answer.stdout.strip() == PYTHON


def install(python: str, folder: Path = FOLDER) -> Path:
    """The interpreter of the environment, which is made where it is not there yet or another lock made it."""
    made_from = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    environment, ready = folder / "env", folder / "made-from"
    interpreter = environment / "bin" / "python"
    if interpreter.exists() and ready.exists() and ready.read_text() == made_from and is_right(str(interpreter)):
        return interpreter
    sys.stderr.write(f"Installing LocalStack {VERSION} into {folder}, which may take a minute …\n")
    ready.unlink(missing_ok=True)
    shutil.rmtree(environment, ignore_errors=True)
    beside = Path(sys.executable).with_name("uv")
    uv = shutil.which("uv") or str(beside)
    _run(uv, "venv", "--quiet", "--no-project", "--python", python, str(environment))
    _run(uv, "pip", "install", "--quiet", "--python", str(interpreter), "--require-hashes", "-r", str(LOCK))
    ready.write_text(made_from)
    return interpreter


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_SECONDS, stdin=subprocess.DEVNULL)


@contextmanager
def localstack(python: Path) -> Iterator[str]:
    """Starts one on a free local port and yields its URL; it is gone at the end, whatever happened.

    Raises RuntimeError, with the end of its log, when it does not come up.
    """
    with tempfile.TemporaryDirectory(prefix="fanfold-localstack-", ignore_cleanup_errors=True) as name:
        folder, port = Path(name), free_port()
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(python), "-m", "localstack.runtime.main"],
                env=_environment(python, port, folder),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # whatever it starts is in its group, and goes with it
            )
            try:
                url = f"http://127.0.0.1:{port}"
                _wait_until_up(process, url, log)
                yield url
            finally:
                _stop(process)


def _environment(python: Path, port: int, folder: Path) -> dict[str, str]:
    """Nothing of the caller's: no settings, profile or proxy of a developer's own reaches it."""
    address = f"127.0.0.1:{port}"
    return {
        "PATH": os.pathsep.join([str(python.parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LOCALSTACK_VOLUME_DIR": str(folder / "volume"),
        "GATEWAY_LISTEN": address,
        "LOCALSTACK_HOST": address,  # in the URLs of queues; its own name for this machine needs a DNS to resolve
        "SQS_ENDPOINT_STRATEGY": "path",
        "SERVICES": ",".join(SERVICES),
        "STRICT_SERVICE_LOADING": "1",
        "EAGER_SERVICE_LOADING": "1",
        "DNS_ADDRESS": "0",
        "DISABLE_EVENTS": "1",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "SFN_MOCK_CONFIG": str(MOCKS),
        "PYTHONUNBUFFERED": "1",
    }


def _wait_until_up(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            health: Any = httpx.get(f"{url}/_localstack/health", timeout=5, trust_env=False).json()
        except (httpx.TransportError, ValueError):
            time.sleep(0.1)
            continue
        if health["version"] != VERSION:
            raise RuntimeError(f"this is LocalStack {health['version']}, the tests need {VERSION}")
        if all(health["services"].get(name) in ("available", "running") for name in SERVICES):
            return
        time.sleep(0.1)
    tail = log.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"LocalStack did not come up (exit status {process.poll()}):\n{tail}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)


def main() -> int:
    """Make the environment; see the module."""
    parser = argparse.ArgumentParser(description=f"Install LocalStack {VERSION} for the tests.")
    parser.add_argument("--find", action="store_true", help="only tell the Python that it would be installed by")
    asked = parser.parse_args()
    try:
        python = find_python(os.environ, Path.home(), is_right)
    except Missing as missing:
        sys.stderr.write(f"{missing}\n")
        return 2
    sys.stdout.write(f"{python if asked.find else install(python)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
