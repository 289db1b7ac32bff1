"""The dead-letter Lambda: messages that were received too often, back on their way or dropped, never silently."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from fanfold.adapters.aws.sqs import from_event
from fanfold.service.dead_letters import revive
from fanfold.service.settings import Settings
from fanfold.service.telemetry.reporting import FunctionName, begin, flush
from fanfold.service.wiring import Services, queue_urls, services

Answer = dict[str, Any]


def build(services: Services) -> Callable[[Mapping[str, Any], object], Answer]:
    """The handler on these services, called as Lambda calls it; it returns the messages that stay."""
    urls = queue_urls(services.settings)

    def run(event: Mapping[str, Any], context: object) -> Answer:
        try:
            stays = asyncio.run(revive(services, from_event(event, urls), now=services.clock.now()))
        finally:
            flush()
        return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in stays]}

    return run


@cache
def _deadletter() -> Callable[[Mapping[str, Any], object], Answer]:
    settings = Settings.from_env(os.environ)
    begin(settings, FunctionName.DEADLETTER)
    return build(services(settings))


def handler(event: Mapping[str, Any], context: object) -> Answer:
    """Lambda's entry point."""
    return _deadletter()(event, context)
