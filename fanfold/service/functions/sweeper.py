"""The sweeper Lambda, each minute: the net below everything that may be lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

from fanfold.service.engine_limits import engine_limits
from fanfold.service.settings import Settings
from fanfold.service.sweeper.expire_queued import QueueExpiry
from fanfold.service.sweeper.sweep import sweep
from fanfold.service.telemetry.reporting import FunctionName, begin, flush, logger
from fanfold.service.wiring import Services, services
from fanfold.service.workflow_cache import WorkflowCache

Answer = dict[str, Any]


def build(services: Services) -> Callable[[object, object], Answer]:
    """The sweeper on these services, called as Lambda calls a handler; it returns the pass's report."""
    limits = engine_limits(services.settings)
    settle = QueueExpiry(
        services, WorkflowCache(services.catalog, services.settings.classes, aside=services.aside), limits
    )

    def run(event: object, context: object) -> Answer:
        try:
            report = asdict(asyncio.run(sweep(services, limits, now=services.clock.now(), expire=settle)))
            logger().info("swept", extra=report)
            return report
        finally:
            flush()

    return run


@cache
def _sweeper() -> Callable[[object, object], Answer]:
    settings = Settings.from_env(os.environ)
    begin(settings, FunctionName.SWEEPER)
    return build(services(settings))


def handler(event: object, context: object) -> Answer:
    """Lambda's entry point. Raises when a part of the pass failed, so that the function's errors show it."""
    return _sweeper()(event, context)
