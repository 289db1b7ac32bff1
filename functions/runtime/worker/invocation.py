"""The worker as a Lambda function: what a sandbox keeps between invocations, and how one ends (R7, R11)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from functions.adapters.sqs import from_event
from functions.runtime.settings import Settings
from functions.runtime.surroundings import Surroundings
from functions.runtime.taskmodules import load_tasks
from functions.runtime.telemetry import FunctionName, begin, flush
from functions.runtime.wiring import Services, queue_urls, services
from functions.runtime.worker.attempts import Attempts
from functions.runtime.worker.batch import work
from functions.runtime.worker.naming import worker_name
from functions.runtime.worker.runner import Runner
from functions.runtime.workflows import WorkflowCache


class Invocations:
    """A sandbox's worker: clients, workflows and the loop stay warm, nothing else outlives an invocation."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._urls = queue_urls(services.settings)
        self._workflows = WorkflowCache(services.catalog, services.settings.classes, aside=services.aside)
        self._attempts = Attempts(services.settings, services.clock)
        self._loop = asyncio.Runner()
        self._surroundings = Surroundings()

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Invocations:
        """The worker as the function's environment describes it."""
        settings = Settings.from_env(environ)
        begin(settings, FunctionName.WORKER)
        load_tasks()
        return cls(services(settings))

    def work(self, event: Mapping[str, Any], *, seconds_left: float) -> Sequence[str]:
        """Work on an event's messages; returns the ids of those to be delivered again.

        When a task would not stop, the sandbox ends here and does not come back: its messages are
        settled by then, so the failed invocation repeats nothing.
        """
        self._surroundings.restore()
        messages = from_event(event, self._urls)
        runner = Runner(self._services, self._workflows, self._attempts, worker=worker_name(), alone=len(messages) == 1)
        try:
            again = self._loop.run(
                work(
                    self._services,
                    runner,
                    messages,
                    seconds_left=seconds_left,
                    spent=lambda: bool(self._attempts.lingering),
                )
            )
        finally:
            flush()
        if self._spent():
            os._exit(1)
        return again

    def _spent(self) -> bool:
        return self._attempts.lingering > 0
