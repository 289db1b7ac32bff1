"""Makes the runs of two workflows poison for whoever decides on them, where this folder is on the PYTHONPATH.

Python imports it when it starts. `gorge` takes memory, and is killed as the kernel kills who takes too much of it;
`dawdle` keeps the worker's loop standing for longer than a lease. Both before anything of the decision is written.
Standard library only, and nothing of ours: the interpreter is not ready yet.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

SHELL = "fanfold.service.worker.run_commits"
GORGE_BYTES = 128_000_000


class AtImport(importlib.abc.MetaPathFinder):
    """Poisons the shell as soon as it is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The shell's own spec, with more to be done at its end."""
        if fullname != SHELL:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            poison(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one loader
        return spec


def poison(shell: Any) -> None:
    """From now on, deciding what follows for such a run is deadly."""
    decide = shell.decide

    def deadly(run: Any, *given: Any, goes_on: bool = True, **more: Any) -> Any:
        kind = run.workflow.partition("-")[0]
        if goes_on and kind == "gorge":
            eaten = b"x" * GORGE_BYTES
            os.kill(os.getpid(), signal.SIGKILL)
            del eaten
        if goes_on and kind == "dawdle":
            time.sleep(2 * more["limits"].lease.total_seconds())
        return decide(run, *given, goes_on=goes_on, **more)

    shell.decide = deadly


sys.meta_path.insert(0, AtImport())
