"""Watches processes while something else happens: memory and open file descriptors, from Linux's /proc."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fanfold.local import LocalStack

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A process at one moment: seconds since the watch began, resident memory, descriptors, processor time so far."""

    at: float
    resident_mb: float
    descriptors: int
    processor_seconds: float


def look(pid: int, *, at: float) -> Sample | None:
    """A process as it is; None when it is gone."""
    folder = Path(f"/proc/{pid}")
    try:
        pages = int((folder / "statm").read_text().split()[1])
        descriptors = len(os.listdir(folder / "fd"))
        # After the name, which may hold anything but ends with the last bracket: fields 14 and 15 are user and system.
        ticks = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Sample(
        at=at,
        resident_mb=pages * os.sysconf("SC_PAGE_SIZE") / MIB,
        descriptors=descriptors,
        processor_seconds=sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"),
    )


def functions_of(stack: LocalStack, name: str) -> dict[str, int]:
    """The processes that are one of a stack's functions, where its emulator runs them on this machine."""
    wanted = f"AWS_LAMBDA_FUNCTION_NAME={stack.functions[name]}"
    parents = _parents()
    found: dict[str, int] = {}
    for pid in parents:
        ancestor: int | None = pid
        while ancestor is not None and ancestor != stack.pid:
            ancestor = parents.get(ancestor)
        if ancestor is not None and wanted in _environ(pid):
            found[f"{name}-{len(found)}"] = pid
    return found


def _environ(pid: int) -> list[str]:
    """A process's environment as it began, `NAME=value` each; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def _parents() -> dict[int, int]:
    """Every process's parent."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
    return found


@contextmanager
def sampled(processes: Mapping[str, int], *, every_seconds: float) -> Iterator[Mapping[str, list[Sample]]]:
    """What processes are like, by name, looked at regularly until the block ends, and once at its end."""
    samples: dict[str, list[Sample]] = {name: [] for name in processes}
    began = time.monotonic()
    over = threading.Event()

    def look_at_all() -> None:
        for name, pid in processes.items():
            if (sample := look(pid, at=time.monotonic() - began)) is not None:
                samples[name].append(sample)

    def watch() -> None:
        look_at_all()
        while not over.wait(every_seconds):
            look_at_all()

    thread = threading.Thread(target=watch, name="sampling")
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
        look_at_all()
