"""The modules of tasks in this process: imported before anything is claimed, and told of when one can't be."""

from __future__ import annotations

from fanfold.service.settings import Settings
from fanfold.service.telemetry.reporting import Metric, count, logger
from fanfold.tasks import registry

_told: set[str] = set()


def load_tasks(settings: Settings, *, secrets: bool = False) -> None:
    """Import every module of tasks that the settings name.

    Who executes tasks has their `secrets` looked up before. A module that can't be imported is logged, with its
    traceback, and counted, once in a process.
    """
    if secrets:  # a module may want them as it is imported
        from fanfold.service.task_secrets import look_up

        look_up()
    registry.use(settings.task_modules)
    for module in registry.broken():
        if module.name not in _told:
            _told.add(module.name)
            count(Metric.TASKS_NOT_LOADED)
            facts = {"task_module": module.name, "tasks": sorted(module.tasks), "error": module.error}
            logger().error("a module of tasks could not be imported", extra={**facts, "trace": module.trace})
