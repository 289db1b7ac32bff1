"""Watches processes while something else happens: memory, open file descriptors, processor time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from fanfold.local.local_stack import LocalStack

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
    try:
        process = psutil.Process(pid)
        used = process.cpu_times()
        return Sample(
            at=at,
            resident_mb=process.memory_info().rss / MIB,
            descriptors=process.num_fds(),
            processor_seconds=used.user + used.system,
        )
    except psutil.NoSuchProcess:
        return None


def functions_of(stack: LocalStack, name: str) -> dict[str, int]:
    """The processes that are one of a stack's functions, where its emulator runs them on this machine."""
    found: dict[str, int] = {}
    for process in psutil.Process(stack.pid).children(recursive=True) if stack.pid else ():
        try:
            serves = process.environ().get("AWS_LAMBDA_FUNCTION_NAME")
        except psutil.NoSuchProcess:
            continue  # it ended while we looked
        if serves == stack.functions[name]:
            found[f"{name}-{len(found)}"] = process.pid
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
