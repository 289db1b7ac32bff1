"""The engine alone, in this process: memory adapters with the real codec, one core, tasks that do nothing."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from fanfold.adapters.aws.run_items import from_item, to_item
from fanfold.adapters.memory import MemoryRunStore, RunCodec
from fanfold.engine.ports import Condition
from fanfold.engine.record.run import Run, Status
from fanfold.explore.memory import memory_services
from fanfold.service.clock import SystemClock, SystemIds
from fanfold.service.functions.api import build
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.worker.garbage import look_seldom
from fanfold.service.worker.isolation import Isolation
from fanfold.service.worker.process import Worker
from loadtest.server import LANES, request_event

CONCURRENCY = 32
"""As a worker process has it where nobody says otherwise."""
STUCK_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """So many runs, carried from their first claim to their end: seconds of the processor, and that passed."""

    runs: int
    processor_seconds: float
    elapsed_seconds: float
    submit_processor_seconds: float


def worked(document: Mapping[str, Any], runs: int, *, concurrency: int = CONCURRENCY) -> Worked:
    """Submit so many runs of a workflow, then have one worker carry all of them.

    What the worker says goes where nobody reads it; it says it all the same. Raises RuntimeError when a run does not
    succeed, TimeoutError when one does not end.
    """
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        return asyncio.run(_worked(document, runs, concurrency))


def packing_seconds(rounds: int = 2_000) -> float:
    """Processor time in which Python's own libraries pack a page of 20 events: what this machine is measured by.

    From JSON and back, and deflated; the best of five, for others use this machine too.
    """
    event = {
        "at": "2026-11-30T12:00:00.000Z",
        "type": "step.succeeded",
        "step": "combine",
        "output": {"text": "x" * 10},
    }
    text = json.dumps({"events": [{"seq": seq, **event} for seq in range(20)]})
    taken = []
    for _ in range(5):
        begun = time.process_time()
        for _ in range(rounds // 5):
            zlib.compress(json.dumps(json.loads(text)).encode(), 9)
        taken.append((time.process_time() - begun) / (rounds // 5))
    return min(taken)


class _Ends(MemoryRunStore):
    """A store that tells when so many runs have ended, and how."""

    def __init__(self, expected: int) -> None:
        super().__init__(RunCodec(encode=to_item, decode=from_item))
        self.ends: Counter[Status] = Counter()
        self.all_ended = asyncio.Event()
        self._expected = expected

    async def put(self, run: Run, condition: Condition, *, now: datetime) -> int:
        """See `RunStore.put`."""
        item_bytes = await super().put(run, condition, now=now)
        if run.terminal:
            self.ends[run.status] += 1
            if self.ends.total() == self._expected:
                self.all_ended.set()
        return item_bytes


async def _worked(document: Mapping[str, Any], runs: int, concurrency: int) -> Worked:
    settings = Settings(classes={"model": ClassSettings(lanes=LANES, max_queue_depth=0)}, submits_per_minute=0)
    plain, _ = memory_services(settings, SystemClock(), SystemIds())
    store = _Ends(runs)
    services = replace(plain, runs=store)
    app = build(services)
    path = f"/v1/workflows/{document['name']}"
    await app.answer(request_event("PUT", path, body=json.dumps(document).encode()), None)
    submit = request_event("POST", "/v1/runs", body=json.dumps({"workflow": document["name"]}).encode())
    begun = time.process_time()
    for _ in range(runs):
        answer = await app.answer(submit, None)
        if answer["statusCode"] != 202:
            raise RuntimeError(f"a submit was answered {answer['statusCode']}: {answer['body']}")
    submitting = time.process_time() - begun
    isolation = Isolation(settings)
    worker = Worker(services, class_name="model", lanes=LANES, concurrency=concurrency, isolation=isolation)
    gc.collect()
    usual = gc.get_threshold()
    look_seldom()  # as a worker's process does; the store holds what was submitted, which is not to be looked through
    begun, began = time.process_time(), time.monotonic()
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(STUCK_SECONDS):
        await store.all_ended.wait()
    processor, elapsed = time.process_time() - begun, time.monotonic() - began
    gc.unfreeze()
    gc.set_threshold(*usual)
    worker.stop()
    await task
    if store.ends != {Status.SUCCEEDED: runs}:
        raise RuntimeError(f"of {runs} runs ended: {dict(store.ends)}")
    return Worked(runs=runs, processor_seconds=processor, elapsed_seconds=elapsed, submit_processor_seconds=submitting)
