"""The sweeper Lambda, each minute: the net below everything that may be lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

from functions.runtime.settings import Settings
from functions.runtime.sweeper.settle import Settler
from functions.runtime.sweeper.sweep import sweep
from functions.runtime.telemetry import FunctionName, begin, flush, logger
from functions.runtime.terms import terms_of
from functions.runtime.wiring import Services, services
from functions.runtime.workflows import WorkflowCache

Answer = dict[str, Any]


def build(services: Services) -> Callable[[object, object], Answer]:
    """The sweeper on these services, called as Lambda calls a handler; it returns the pass's report."""
    terms = terms_of(services.settings)
    settle = Settler(services, WorkflowCache(services.catalog, services.settings.classes, aside=services.aside), terms)

    def run(event: object, context: object) -> Answer:
        try:
            report = asdict(asyncio.run(sweep(services, terms, now=services.clock.now(), settle=settle)))
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
