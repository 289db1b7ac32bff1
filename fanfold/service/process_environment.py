"""What a process was given by its surroundings, kept for its own needs: a task shares its process and may change it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType


class ProcessEnvironment:
    """The environment and the working folder as they were when this was made."""

    def __init__(self) -> None:
        self.environ: Mapping[str, str] = MappingProxyType(dict(os.environ))
        self.folder = os.getcwd()

    def restore(self) -> None:
        """Put back the variables that are not there any more; what a task has set or changed stays."""
        for name, value in self.environ.items():
            os.environ.setdefault(name, value)
