"""`fanfold worker` processes of a local stack, to be killed, frozen, thawed and told to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType

from tests.support.site import clean_environment, until

END_SECONDS = 120.0
"""A drain is given 25 s by the settings; a busy machine needs more."""


class Fleet:
    """Worker processes for a class of the stack of `folder` (where its `.fanfold` lies), `concurrency` runs each.

    They have `environ` beside this process's environment.

    Whatever is left at the end is killed, the children in which suspects are worked on included.
    """

    def __init__(
        self, folder: Path, *, class_name: str, concurrency: int, environ: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._folder = folder
        self._environ = environ
        self._arguments = ("--class", class_name, "--concurrency", str(concurrency), "--json")
        self._workers: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid, worker in self._workers.items():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            worker.wait(END_SECONDS)

    @property
    def living(self) -> list[int]:
        """The workers that have not ended, oldest first."""
        return [pid for pid, worker in self._workers.items() if worker.poll() is None]

    def start(self, count: int = 1, *, ready: bool = True) -> list[int]:
        """Start workers side by side; with `ready`, wait until they poll. Returns their pids."""
        started = [self._start() for _ in range(count)]
        for pid, log in started if ready else ():
            until(lambda log=log: log.stat().st_size > 0, seconds=END_SECONDS, what=lambda pid=pid: f"{pid} is silent")
        return [pid for pid, _ in started]

    def _start(self) -> tuple[int, Path]:
        log = self._folder / ".fanfold" / f"worker-{len(self._workers)}-of-{id(self):x}.log"
        with log.open("wb") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", "fanfold.commands.command_line", "worker", *self._arguments],
                cwd=self._folder,
                env={**clean_environment(), **self._environ},
                stdin=subprocess.DEVNULL,
                stdout=output,  # not a pipe: a worker that logs more than one holds would stand still
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the children for suspects are in its group
            )
        self._workers[worker.pid] = worker
        return worker.pid, log

    def has(self, pid: int) -> bool:
        """Whether the process is a worker of this fleet, or a child of one."""
        with contextlib.suppress(ProcessLookupError):
            return os.getpgid(pid) in self._workers
        return False

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a process of this fleet; one that is gone takes none."""
        if self.has(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def wait(self, pid: int) -> int:
        """A worker's exit status once it has ended."""
        return self._workers[pid].wait(END_SECONDS)
