"""What is explored: a run with its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Json
from fanfold.explore.modules import ModuleState
from fanfold.service.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A workflow and its document, the run's input, the signals its waits get by name, and the deployment's settings.

    `modules` is what the modules of its tasks hold when a process begins.
    """

    workflow: Workflow
    document: Json
    input: Json
    signals: Mapping[str, Json] = field(default_factory=dict)
    settings: Settings
    modules: ModuleState
