"""What a deployment is configured with: the stage, the classes of workers, and what overrides the shipped settings.

Every number that follows from another is computed here from it, and every hard limit of AWS is checked here,
at synth, because an emulator accepts what AWS refuses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from fanfold.cdk.bedrock import models_of
from fanfold.cdk.classes import ClassConfig, classes_of
from fanfold.cdk.kms_key import key_of
from fanfold.cdk.reserved import reserved_of
from fanfold.cdk.type_checks import check_kinds
from fanfold.project import TASKS as USUAL
from fanfold.project import Project
from fanfold.service.settings import FIXED, ClassSettings, Settings

MAX_EXPRESS_SECONDS = 300
"""The longest execution of an Express workflow (Step Functions quotas); longer batches are Standard ones."""

SOURCE_RETENTION_DAYS = 7
DEAD_RETENTION_DAYS = 14
"""SQS's longest retention. A dead letter keeps its age, so this must be longer than the sources' retention (R13)."""
MAX_RECEIVES = 10
"""High, because a throttled event source mapping uses up receives; the run's record counts crashes (R7)."""
BATCH_SIZE = 10
"""SQS's largest batch without a window; waiting for a fuller one would cost latency."""
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
"""The names that a table may have (DynamoDB, naming rules)."""
LEAST_MARGIN_SECONDS = 25
"""All tries of an AWS call together take at most this long, so that no try outlives its function (R11)."""
BEGIN_SECONDS = 20
"""Time of a function for claims and inputs, before a step begins; beside the longest step and the margin."""
_STAGE = re.compile(r"[a-z][a-z0-9-]{0,19}")
FROM_STACK = frozenset({"table", "bucket", "database", "public_url", "task_modules", "classes", "stage", "service"})
"""Settings that are facts of the stack: context can't override them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One deployment.

    `local` is for emulators; `mappings` off leaves the queues to worker processes; `table` names a restored table that
    takes the place of the stack's own.
    """

    stage: str = "dev"
    stack_name: str = "fanfold-dev"
    local: bool = False
    layer: bool = True
    mappings: bool = True
    tracing: bool = False
    architecture: str = "arm64"
    api: str = "http"
    requests_per_second: int = 5_000
    reserved: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    kms: str = ""
    table: str = ""
    alarm_email: str = ""
    bedrock_models: tuple[str, ...] = ()
    classes: Mapping[str, ClassConfig] = field(default_factory=lambda: MappingProxyType({"model": ClassConfig()}))
    task_modules: tuple[str, ...] = USUAL
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.architecture not in ("arm64", "x86_64"):
            raise ValueError(f"architecture: {self.architecture!r} is neither 'arm64' nor 'x86_64'")
        if self.api not in ("http", "rest"):
            raise ValueError(f"api: {self.api!r} is neither 'http' nor 'rest'")
        if self.table and not _TABLE.fullmatch(self.table):
            raise ValueError(f"table: {self.table!r} is no table's name")
        watchers = self.overrides.get("max_watchers", Settings().max_watchers)
        if self.reserved.get("watch", watchers + 1) <= watchers:
            raise ValueError(
                f"reserved: watch has {self.reserved['watch']}, and {watchers} calls may wait (setting max_watchers): "
                "it needs some beside them, for reads that do not wait"
            )
        if self.requests_per_second < 2:
            raise ValueError("requests_per_second must be at least 2")
        if not _STAGE.fullmatch(self.stage):
            raise ValueError(f"stage: {self.stage!r} is no name: small letters, digits and '-', at most 20")
        self._check_margin()

    def _check_margin(self) -> None:
        """Check that each class's functions have time for its longest step."""
        margin = self.overrides.get("hand_over_margin_seconds", Settings().hand_over_margin_seconds)
        if margin < LEAST_MARGIN_SECONDS:
            raise ValueError(
                f"settings: hand_over_margin_seconds must be at least {LEAST_MARGIN_SECONDS}, not {margin:g}"
            )
        for name, given in self.classes.items():
            most = given.timeout_seconds - given.max_step_seconds - BEGIN_SECONDS
            if given.pool == "lambda" and margin > most:
                raise ValueError(
                    f"settings: hand_over_margin_seconds is {margin:g}; the functions of class {name} have"
                    f" {given.timeout_seconds} s, and steps of {given.max_step_seconds} s leave {most}"
                )

    @property
    def burst(self) -> int:
        """The burst limit: half of the requests a second, like API Gateway's own limits (10,000 and 5,000)."""
        return self.requests_per_second // 2

    @property
    def lane_metrics(self) -> bool:
        """Whether `QueueWait` has the dimension `lane`."""
        return bool(self.overrides.get("lane_metrics", True))

    @property
    def fair_queues(self) -> bool:
        """Whether messages are sent in their tenants' groups."""
        return bool(self.overrides.get("fair_queues", True))

    @property
    def disposable(self) -> bool:
        """Whether deleting the stack deletes its data."""
        return self.local or self.stage == "dev"

    def settings(
        self,
        *,
        table: str,
        bucket: str,
        queues: Mapping[str, Mapping[str, str]],
        machines: Mapping[str, str] = MappingProxyType({}),
    ) -> Settings:
        """What every process of this deployment is configured with.

        `queues` maps class and role to a URL, `machines` a class to its state machine.
        """
        classes = {
            name: ClassSettings(
                lanes=tuple(given.lanes),
                max_queue_depth=given.max_queue_depth,
                max_step_seconds=float(given.max_step_seconds),
                queues=dict(queues[name]),
                state_machine=machines.get(name, ""),
                max_item_seconds=float(given.item_seconds),
                map_concurrency=given.map_concurrency or 0,
            )
            for name, given in self.classes.items()
        }
        return Settings(
            table=table,
            bucket=bucket,
            classes=classes,
            stage=self.stage,
            service=self.stack_name,
            task_modules=self.task_modules,
            **self.overrides,
        )

    @classmethod
    def from_context(cls, get: Callable[[str], Any], project: Project | None = None) -> Config:
        """The deployment of a project that the CDK context describes; what the context says goes before the project.

        Without a project there is one class, `model`. Raises ValueError naming the key that is wrong.
        """
        stage = str(get("stage") or "dev")
        name = "fanfold" if project is None else project.name
        local = _flag(get, "local", False)
        told = {} if project is None else project.settings
        overrides = {**(_LOCAL_SETTINGS if local else {}), **told, **_object(get, "settings")}
        if get("ledger"):
            overrides["ledger"] = str(get("ledger"))
        depth = overrides.pop("max_queue_depth", None)
        known = {f.name for f in fields(Settings)} - FROM_STACK - (frozenset() if local else FIXED)
        if unknown := set(overrides) - known:
            raise ValueError(f"settings: unknown {sorted(unknown)}; known are {sorted(known)} and max_queue_depth")
        try:
            check_kinds(overrides, Settings)
        except ValueError as error:
            raise ValueError(f"settings: {error}") from error
        if overrides.get("chaos") and stage == "prod":
            raise ValueError("settings: chaos tasks crash workers on purpose; stage prod does not take them")
        given: Mapping[str, Any] = ({} if project is None else project.classes) or {"model": {}}
        if get("classes") is not None:
            given = _object(get, "classes")
        config = cls(
            stage=stage,
            stack_name=str(get("stack") or f"{name}-{stage}"),
            local=local,
            layer=_flag(get, "layer", not local),
            mappings=_flag(get, "mappings", True),
            tracing=_flag(get, "tracing", False),
            architecture=str(get("architecture") or "arm64"),
            api=str(get("api") or "http"),
            requests_per_second=_number(get, "requests_per_second", 5_000),
            reserved=reserved_of(_object(get, "reserved")),
            kms=key_of(get("kms")),
            table=str(get("table") or ""),
            alarm_email=str(get("alarm_email") or ""),
            bedrock_models=models_of(get("bedrock_models")),
            classes=classes_of(given, defaults={} if depth is None else {"max_queue_depth": depth}, local=local),
            task_modules=USUAL if project is None else project.tasks,
            overrides=overrides,
        )
        # The synth refuses what the processes would refuse at their start.
        config.settings(table="", bucket="", queues={name: {} for name in config.classes})
        return config


_LOCAL_SETTINGS: Mapping[str, Any] = {"lease_seconds": 5.0, "clock_skew_seconds": 1.0, "chaos": True}
"""Defaults on an emulator: a short lease shows recovery within seconds, and tests use `chaos.*`."""


def _flag(get: Callable[[str], Any], key: str, default: bool) -> bool:
    match get(key):
        case None:
            return default
        case bool() as value:
            return value
        case "true":
            return True
        case "false":
            return False
        case other:
            raise ValueError(f"{key}: {other!r} is neither true nor false")


def _number(get: Callable[[str], Any], key: str, default: int) -> int:
    value = get(key)
    try:
        return default if value is None else int(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key}: {value!r} is no whole number") from error


def _object(get: Callable[[str], Any], key: str) -> dict[str, Any]:
    value = get(key)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"{key}: no JSON: {error}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{key}: must be a JSON object")
    return dict(value)
