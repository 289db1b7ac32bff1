"""The embedded AWS emulator as a process of the test session."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

VERSION = "1.5.33"
"""The release the project pins: without the pin, pip falls back to 1.4.21, which behaves otherwise."""

START_SECONDS = 30.0
STOP_SECONDS = 10.0


@contextmanager
def emulator() -> Iterator[str]:
    """Starts an emulator on a free local port and yields its URL; it is gone at the end, whatever happened.

    Raises RuntimeError, with the end of its log, when it does not come up.
    """
    with tempfile.TemporaryDirectory(prefix="fanfold-emulator-") as folder:
        port = free_port()
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                # As `fanfold up` starts it: no page in a developer's browser reaches it, and tests meet what ships.
                [sys.executable, "-m", "fanfold.local.emulator", "--port", str(port), "--state", folder],
                env=_environment(port, folder),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                url = f"http://127.0.0.1:{port}"
                _wait_until_up(process, url, log)
                yield url
            finally:
                _stop(process)


def _environment(port: int, folder: str) -> dict[str, str]:
    """Its settings beside ours; our own AWS settings (another endpoint, a profile) must not reach it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return inherited | {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "MINISTACK_REGION": "us-east-1",
        "TMPDIR": folder,
    }


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_up(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            health = httpx.get(f"{url}/_ministack/health", timeout=2, trust_env=False).json()
        except httpx.TransportError:
            time.sleep(0.05)
            continue
        if health["version"] != VERSION:
            raise RuntimeError(f"the emulator is MiniStack {health['version']}, the project needs {VERSION}")
        return
    tail = log.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"the emulator did not come up (exit status {process.poll()}):\n{tail}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
