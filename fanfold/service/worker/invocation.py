"""The worker as a Lambda function: what a sandbox keeps between invocations, and how one ends (R7, R11)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from fanfold.adapters.aws.sqs import from_event
from fanfold.service.process_environment import ProcessEnvironment
from fanfold.service.settings import Settings
from fanfold.service.task_modules import load_tasks
from fanfold.service.telemetry.reporting import FunctionName, begin, flush
from fanfold.service.wiring import Services, queue_urls, services
from fanfold.service.worker.batch import work
from fanfold.service.worker.garbage import look_seldom
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.worker.worker_name import worker_name
from fanfold.service.workflow_cache import WorkflowCache


class Invocations:
    """A sandbox's worker: clients, workflows and the loop stay warm, nothing else outlives an invocation."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._urls = queue_urls(services.settings)
        self._workflows = WorkflowCache(services.catalog, services.settings.classes, aside=services.aside)
        self._attempts = TaskRunner(services.settings, services.clock)
        self._loop = asyncio.Runner()
        self._surroundings = ProcessEnvironment()

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Invocations:
        """The worker as the function's environment describes it."""
        settings = Settings.from_env(environ)
        begin(settings, FunctionName.WORKER)
        load_tasks(settings, secrets=True)
        made = cls(services(settings))
        look_seldom()
        return made

    def work(self, event: Mapping[str, Any], *, seconds_left: float) -> Sequence[str]:
        """Work on an event's messages; returns the ids of those to be delivered again.

        When a task would not stop, the sandbox ends here and does not come back: its messages are
        settled by then, so the failed invocation repeats nothing.
        """
        self._surroundings.restore()
        messages = from_event(event, self._urls)
        runner = MessageHandler(
            self._services, self._workflows, self._attempts, worker=worker_name(), alone=len(messages) == 1
        )
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
