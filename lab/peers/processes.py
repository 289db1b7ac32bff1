"""Processes of peers: begun with a log, waited for until they answer, ended by their id."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

STOP_SECONDS = 20.0
LOOK_SECONDS = 0.2


@contextmanager
def running(command: Sequence[str], *, log: Path, environ: Mapping[str, str], cwd: Path) -> Iterator[int]:
    """A process for the length of the block; gives its id. One that does not end when told to is killed."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=cwd, env=dict(environ), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until(answers: Callable[[], bool], *, within_seconds: float, what: str) -> None:
    """Wait until something answers. Raises TimeoutError saying what did not."""
    ends_at = time.monotonic() + within_seconds
    while not answers():
        if time.monotonic() > ends_at:
            raise TimeoutError(f"{what} was not there after {within_seconds:g} s")
        time.sleep(LOOK_SECONDS)


def free_port() -> int:
    """A port of this machine that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
