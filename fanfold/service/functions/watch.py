"""The watch Lambda: shows runs and their events, now or (`wait`, streams) as soon as there is something to show.

The same calls as the API's, in a function of its own: one that waits holds a whole sandbox, so this one is small and
can't take the room of those that answer at once. It may write no run.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

from fanfold.service.api.app import App
from fanfold.service.settings import Settings
from fanfold.service.telemetry.reporting import FunctionName, begin
from fanfold.service.wiring import services


@functools.cache
def _app() -> App:
    settings = Settings.from_env(os.environ)
    begin(settings, FunctionName.WATCH)
    return App(services(settings))


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Lambda's entry point; the first call builds everything that the next ones find."""
    return _app()(event, context)
