"""Copies a local worker's metrics into a file for the bridge, and its output to where it went before.

This module run as a program is the process in between. It copies standard input to standard output until all writers
have ended, so that a worker that is killed loses no printed line.
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
"""Tells a replaced program image that its standard output is copied already."""


def begin(state: Path) -> None:
    """Start copying the metrics that this process and its children print."""
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
    between.returncode = 0  # it outlives this process; without this Popen warns
    os.environ[_TOLD] = str(os.getpid())


def _copy(path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with its input
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
