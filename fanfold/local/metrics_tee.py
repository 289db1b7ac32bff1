"""What a local worker process prints goes on to where it went, and its metrics into a file for the bridge.

Run as a module it is the process between: it copies its standard input to its standard output and lives until
everybody who prints has ended, so that a worker killed with SIGKILL takes nothing it had printed with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from fanfold.local.emf import MARK

FOLDER = "metrics"
"""Below the state folder: one file for each worker process."""

_TOLD = "FANFOLD_TEE"
"""Says to a process image that follows this one, and has its standard output, that this was done already."""


def begin(state: Path) -> None:
    """From here on, what this process and its children print is read for metrics."""
    if os.environ.get(_TOLD) == str(os.getpid()):
        return
    folder = state / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    between = subprocess.Popen(
        [sys.executable, "-m", "fanfold.local.metrics_tee", str(folder / f"{os.getpid()}.jsonl")],
        stdin=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C is for the worker
    )
    assert between.stdin is not None
    with between.stdin as pipe:
        os.dup2(pipe.fileno(), sys.stdout.fileno())
    between.returncode = 0  # it outlives this process, and Popen would warn about that
    os.environ[_TOLD] = str(os.getpid())


def _copy(path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends when there is nothing more to come
    mark = MARK.encode()
    with path.open("ab") as metrics:
        for line in sys.stdin.buffer:
            if mark in line:
                metrics.write(line)
                metrics.flush()
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            except BrokenPipeError:
                # Nobody reads on; the metrics are still wanted. What is at descriptor 1 must take what is left.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    _copy(Path(sys.argv[1]))
