"""The services in memory, on a clock the test moves."""

from __future__ import annotations

from fanfold.engine.ports import Clock
from fanfold.explore.memory import memory_services as explored
from fanfold.service.settings import Settings
from fanfold.service.wiring import Services
from tests.support.clock import SeededIds


def memory_services(clock: Clock, settings: Settings | None = None) -> Services:
    """Empty services; every record makes the round trip it makes in the real table."""
    wired, _ = explored(settings or Settings(), clock, SeededIds())
    return wired
