"""What is explored: a run that is yet to be played."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fanfold.explore.modules import ModuleState
from functions.engine.values import Json
from functions.engine.workflow import Workflow
from functions.runtime.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A workflow and its document, the run's input, the signals its waits get by name, and the deployment's settings.

    `modules` is what the modules of its tasks hold when a process begins.
    """

    workflow: Workflow
    document: Json
    input: Json
    signals: Mapping[str, Json] = field(default_factory=dict)
    settings: Settings
    modules: ModuleState
