"""What a deployment is configured with: the stage, the classes of workers, and what overrides the shipped settings.

Every number that follows from another is computed here from it, and every hard limit of AWS is checked here,
at synth, because an emulator accepts what AWS refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from functions.engine.message import DEAD, RESUME
from functions.runtime.settings import ClassSettings, Settings

MAX_FUNCTION_SECONDS = 900
"""Lambda's longest timeout (Lambda quotas)."""
STEP_MARGIN_SECONDS = 60
"""What a function keeps of its timeout for committing and handing over: `max_step` is the timeout less this."""
BATCH_MARGIN_SECONDS = 45
"""What the function of a batch keeps beside one attempt at an item: to begin, and to record what came of it."""
MAX_EXPRESS_SECONDS = 300
"""The longest execution of an Express workflow (Step Functions quotas); longer batches are Standard ones."""
MAPPING_CONCURRENCY = range(2, 1001)
"""What an event source mapping's MaximumConcurrency may be (Lambda's SQS scaling page)."""

SOURCE_RETENTION_DAYS = 7
DEAD_RETENTION_DAYS = 14
"""SQS's longest. A dead letter keeps the age it had, so this has to be more than the sources keep (R13)."""
MAX_RECEIVES = 10
"""High, because a throttled mapping burns receives; crashes are counted in the run's record (R7)."""
BUCKET_MARGIN_DAYS = 30
"""Objects outlive the longest possible run by this (R15)."""
BATCH_SIZE = 10
"""SQS's largest batch without a window; waiting for a fuller one would cost latency."""
FROM_STACK = frozenset({"table", "bucket", "classes", "stage"})
"""Settings that are facts of the stack: context can't override them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassConfig:
    """One pool of workers: its lanes (best first) with the most batches each works on at once.

    `resume` is the same for the resume queue: at least as much as all lanes together, so that work begun gets
    at least half (R7). `item_seconds` is the longest attempt at an item of a wide map; `emulated_batches` is how many
    of a map's batches an emulator works on at once. Raises ValueError naming what AWS or a rule of ours refuses.
    """

    lanes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({"normal": 50}))
    resume: int = 50
    max_queue_depth: int = 10_000
    memory_mb: int = 1_024
    timeout_seconds: int = MAX_FUNCTION_SECONDS
    reserved_concurrency: int | None = None
    item_seconds: int = 240
    emulated_batches: int = 4

    def __post_init__(self) -> None:
        if not self.lanes or {RESUME, DEAD} & set(self.lanes):
            raise ValueError(f"a class needs lanes, and none of them is named {RESUME!r} or {DEAD!r}")
        for name, most in {**self.lanes, RESUME: self.resume}.items():
            if most not in MAPPING_CONCURRENCY:
                raise ValueError(f"concurrency of {name} is {most}; a mapping's MaximumConcurrency is 2–1000")
        if self.resume < sum(self.lanes.values()):
            raise ValueError(f"resume has {self.resume}, the lanes {sum(self.lanes.values())}: it needs at least half")
        if not STEP_MARGIN_SECONDS < self.timeout_seconds <= MAX_FUNCTION_SECONDS:
            raise ValueError(f"timeout_seconds must be over {STEP_MARGIN_SECONDS}, at most {MAX_FUNCTION_SECONDS}")
        if not 0 < self.item_seconds <= MAX_FUNCTION_SECONDS - BATCH_MARGIN_SECONDS:
            raise ValueError(f"item_seconds must be from 1 to {MAX_FUNCTION_SECONDS - BATCH_MARGIN_SECONDS}")
        if self.reserved_concurrency is not None and self.reserved_concurrency < self.concurrency:
            raise ValueError(
                f"reserved_concurrency {self.reserved_concurrency} is less than the mappings' {self.concurrency}: "
                "they would be throttled, and throttled deliveries end in the dead-letter queue"
            )

    @property
    def concurrency(self) -> int:
        """The most batches the class works on at once, all mappings together."""
        return sum(self.lanes.values()) + self.resume

    @property
    def batch_seconds(self) -> int:
        """The timeout of the function that works on a batch of a map's items."""
        return self.item_seconds + BATCH_MARGIN_SECONDS

    @property
    def max_step_seconds(self) -> int:
        """The longest step a worker of this class can take."""
        return self.timeout_seconds - STEP_MARGIN_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One deployment. `local` is for emulators; `mappings` off leaves the queues to worker processes."""

    stage: str = "dev"
    stack_name: str = "fanfold-dev"
    local: bool = False
    layer: bool = True
    mappings: bool = True
    architecture: str = "arm64"
    alarm_email: str = ""
    classes: Mapping[str, ClassConfig] = field(default_factory=lambda: MappingProxyType({"model": ClassConfig()}))
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.architecture not in ("arm64", "x86_64"):
            raise ValueError(f"architecture: {self.architecture!r} is neither 'arm64' nor 'x86_64'")

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
            )
            for name, given in self.classes.items()
        }
        return Settings(table=table, bucket=bucket, classes=classes, stage=self.stage, **self.overrides)

    @classmethod
    def from_context(cls, get: Callable[[str], Any]) -> Config:
        """The deployment that the CDK context describes. Raises ValueError naming the key that is wrong."""
        if (get("api") or "http") != "http":
            raise ValueError("api: only 'http' is built")
        stage = str(get("stage") or "dev")
        local = _flag(get, "local", False)
        overrides = {**(_LOCAL_SETTINGS if local else {}), **_object(get, "settings")}
        if get("ledger"):
            overrides["ledger"] = str(get("ledger"))
        depth = overrides.pop("max_queue_depth", None)
        known = {f.name for f in fields(Settings)} - FROM_STACK
        if unknown := set(overrides) - known:
            raise ValueError(f"settings: unknown {sorted(unknown)}; known are {sorted(known)} and max_queue_depth")
        if overrides.get("chaos") and stage == "prod":
            raise ValueError("settings: chaos tasks crash workers on purpose; stage prod does not take them")
        given: dict[str, Any] = _object(get, "classes") or {"model": {}}
        default = {**(_LOCAL_CLASS if local else {}), **({} if depth is None else {"max_queue_depth": depth})}
        config = cls(
            stage=stage,
            stack_name=str(get("stack") or f"fanfold-{stage}"),
            local=local,
            layer=_flag(get, "layer", not local),
            mappings=_flag(get, "mappings", True),
            architecture=str(get("architecture") or "arm64"),
            alarm_email=str(get("alarm_email") or ""),
            classes={name: _class_config(name, {**default, **fields_}) for name, fields_ in given.items()},
            overrides=overrides,
        )
        # Refuses here, with a name, what the processes would refuse at their start.
        config.settings(table="", bucket="", queues={name: {} for name in config.classes})
        return config


_LOCAL_SETTINGS: Mapping[str, Any] = {"lease_seconds": 5.0, "clock_skew_seconds": 1.0, "chaos": True}
"""On an emulator a crash should be seen to heal in seconds, and tests want to crash things."""
_LOCAL_CLASS: Mapping[str, Any] = {"lanes": {"normal": 4}, "resume": 4}
"""An emulator starts a process of about 40 MB per concurrent batch."""


def _class_config(name: str, given: Mapping[str, Any]) -> ClassConfig:
    try:
        return ClassConfig(**given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"classes: {name}: {error}") from error


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
