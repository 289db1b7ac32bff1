"""The API Lambda: API Gateway's events, both payload formats, in; problems and answers out."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

from fanfold.service.api.app import App
from fanfold.service.settings import Settings
from fanfold.service.telemetry.reporting import FunctionName, begin
from fanfold.service.wiring import Services, services


def build(services: Services) -> App:
    """The API on these services: call it with an event and a context, or await its `answer`."""
    return App(services)


@functools.cache
def _app() -> App:
    settings = Settings.from_env(os.environ)
    begin(settings, FunctionName.API)
    return build(services(settings))


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Lambda's entry point; the first call builds everything that the next ones find."""
    return _app()(event, context)
