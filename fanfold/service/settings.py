"""The environment as a class: infrastructure writes it with `to_env`, processes read it with `from_env`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from fanfold.engine.record.run import HOUR_SECONDS
from fanfold.service.addresses import VARIABLES, Addresses, read
from fanfold.service.setting_bounds import BOUNDS, LOG_FORMATS, LOG_LEVELS, MAX_RECORD_BYTES

PREFIX = "FANFOLD_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSettings:
    """One pool of workers: its lanes (best first), bound of queued runs (0: none), longest step in seconds.

    `queues` maps each lane, `resume` and `dead` to a queue URL. `state_machine` is the ARN of the one that works on
    wide maps ("": all maps stay with their workers), `max_item_seconds` the longest attempt at an item there,
    `map_concurrency` the most batches of a map at once there (0: as many as the map asks for).
    """

    lanes: tuple[str, ...] = ("normal",)
    max_queue_depth: int = 10_000
    max_step_seconds: float = 840
    queues: Mapping[str, str] = field(default_factory=dict)
    state_machine: str = ""
    max_item_seconds: float = 240
    map_concurrency: int = 0


def _default_classes() -> Mapping[str, ClassSettings]:
    return MappingProxyType({"model": ClassSettings()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that is configured; the defaults are what ships.

    `task_modules` are the modules and packages whose import registers the project's tasks. With
    `log_format` `text` a process logs warnings for a person at a terminal, and keeps its metrics to itself.
    `service` names the deployment in its logs and metrics. `debug_sample` is the share of runs whose every decision is
    logged, `workflow_metrics` whether there are metrics for each workflow (a series each is $0.30 a month),
    `lane_metrics` whether the queue wait is told for each lane or for each class.
    `fair_queues` is whether messages are sent in their tenants' groups, which LocalStack before 4.7 refuses.
    `max_waiters` is how many calls hold their answer back in a process, `max_watchers` in all of them together.
    `missing_task_seconds` is how long a step waits for a task that the deployed code lacks or can't import: three days,
    so that a deployment that went wrong before a weekend can be repaired after it.
    `database` is the SQLite file of a deployment on one machine ("": it is on AWS), `public_url` where such a
    deployment's API is found.
    Refuses combinations that would break a promise (`ValueError` names the setting).
    """

    table: str = ""
    bucket: str = ""
    database: str = ""
    public_url: str = ""
    task_modules: tuple[str, ...] = ("functions.tasks",)
    classes: Mapping[str, ClassSettings] = field(default_factory=_default_classes)
    stage: str = "dev"
    service: str = "fanfold"

    lease_seconds: float = 60
    clock_skew_seconds: float = 5
    hand_over_margin_seconds: float = 30
    suspend_after_seconds: float = 5
    drain_seconds: float = 25
    missing_task_seconds: float = 259_200
    max_crashes: int = 5
    concurrency: int = 32
    aws_threads: int = 32

    inline_bytes: int = 8_192
    max_body_bytes: int = 5_000_000
    max_output_bytes: int = 4_000_000
    retention_days: int = 30
    max_life_days: int = 365
    index_shards: int = 1
    due_shards: int = 1
    slot_shards: int = 1
    max_map_items: int = 10_000
    inline_map_items: int = 50
    map_batch: int = 25
    max_map_bytes: int = 32_000_000
    max_waiters: int = 50
    max_watchers: int = 100
    submits_per_minute: int = 6_000

    sweep_batch: int = 2_000
    sweep_wakes: int = 1_000

    # The windows of slot repair (R6): how long a slot may be returned after its commit, from what age on an
    # envelope that creates its record has none, how long ago an hour of acceptance has to have ended before it is
    # repaired, how long its count must not have changed, and how many records a pass counts.
    slot_hour_seconds: int = HOUR_SECONDS
    slot_return_seconds: float = 60
    slot_void_seconds: float = 7_200
    repair_after_seconds: float = 10_800
    repair_again_seconds: float = 120
    repair_batch: int = 1_000

    chaos: bool = False
    ledger: str = ""
    mock_latency_ms: int = 500
    log_level: str = "INFO"
    log_format: str = "json"
    debug_sample: float = 0.01
    workflow_metrics: bool = False
    lane_metrics: bool = True
    fair_queues: bool = True

    def __post_init__(self) -> None:
        # First of all: what is no number compares as nothing below would expect.
        for name, (least, most) in BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be from {least:,} to {most:,}")
        if self.lease_seconds <= 2 * self.clock_skew_seconds:
            raise ValueError("lease_seconds must be more than twice clock_skew_seconds")
        # Each window has to be over for certain, on every clock, before the next relies on it.
        if self.repair_again_seconds < self.slot_return_seconds + 2 * self.clock_skew_seconds:
            raise ValueError("repair_again_seconds must be at least slot_return_seconds and twice clock_skew_seconds")
        settled_seconds = self.slot_void_seconds + self.slot_return_seconds + 2 * self.clock_skew_seconds
        if self.repair_after_seconds < settled_seconds:
            raise ValueError(
                "repair_after_seconds must be at least slot_void_seconds, slot_return_seconds"
                " and twice clock_skew_seconds"
            )
        if self.map_batch * self.inline_bytes > MAX_RECORD_BYTES:
            raise ValueError(f"map_batch times inline_bytes must be at most {MAX_RECORD_BYTES:,}")
        if self.log_level.upper() not in LOG_LEVELS:
            raise ValueError(f"log_level is {self.log_level!r}; there are {', '.join(LOG_LEVELS)}")
        if self.log_format not in LOG_FORMATS:
            raise ValueError(f"log_format is {self.log_format!r}; there are {', '.join(LOG_FORMATS)}")
        for name, settings in self.classes.items():
            if not settings.lanes:
                raise ValueError(f"class {name} needs at least one lane")

    def class_settings(self, class_name: str) -> ClassSettings:
        """One class; raises KeyError for a class that is not configured."""
        return self.classes[class_name]

    def to_env(self, *, brief: bool = False, addresses: Addresses | None = None) -> dict[str, str]:
        """The environment variables that `from_env` turns back into an equal value.

        A `brief` one says only what is not the default. With `addresses` lanes, queues and state machines are told by
        those: a function's whole environment has 4 KB.
        """
        if addresses is not None:
            bare = {
                name: replace(given, lanes=_CLASS.lanes, queues=_CLASS.queues, state_machine="")
                for name, given in self.classes.items()
            }
            told = replace(self, classes={name: given for name, given in bare.items() if given != _CLASS})
            return told.to_env(brief=brief) | addresses.to_env()
        chosen = [f for f in fields(self) if not brief or f.name in _FACTS or getattr(self, f.name) != f.default]
        return {PREFIX + f.name.upper(): _encode(getattr(self, f.name), brief=brief) for f in chosen}

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Settings from variables named `FANFOLD_…`; what is absent keeps its default.

        What this version does not know, a newer one's settings, is ignored, with a line in the log. Raises ValueError
        naming a bad variable.
        """
        given: dict[str, object] = {}
        for name in sorted(environ.keys() - _KNOWN):
            if name.startswith(PREFIX) and not name.startswith(PREFIX + "SECRET_"):
                logging.getLogger(__name__).warning("%s is no setting of this version: ignored", name)
        if addresses := read(environ):
            given["classes"] = _classes(addresses, environ.get(PREFIX + "CLASSES", "{}"))
        for f in fields(cls):
            text = environ.get(PREFIX + f.name.upper())
            if text is not None and f.name not in given:
                try:
                    given[f.name] = _decode(str(f.type), text)
                except ValueError as error:
                    raise ValueError(f"{PREFIX}{f.name.upper()}={text!r}: {error}") from error
        return cls(**given)  # type: ignore[arg-type]  # names and types come from the fields themselves


_CLASS = ClassSettings()
"""What a class is where nothing is said of it."""

FIXED = frozenset(
    {
        "slot_hour_seconds",
        "slot_return_seconds",
        "slot_void_seconds",
        "repair_after_seconds",
        "repair_again_seconds",
    }
)
"""What no deployment on AWS may set: each of these relies on what other processes, with other settings perhaps, take
for one of the others. Tests have seconds for them."""

_KNOWN = frozenset(
    {PREFIX + f.name.upper() for f in fields(Settings)}
    | VARIABLES
    | {PREFIX + name for name in ("URL", "TOKEN", "TEE")}
)
"""The last three are not settings: where a client finds the API, and where a local worker's metrics go."""

_FACTS = frozenset({"table", "bucket", "classes", "stage"})
"""What a deployment always says of itself."""


def _encode(value: object, *, brief: bool) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, Mapping):
        return json.dumps(
            {
                name: {
                    f.name: _plain(getattr(c, f.name))
                    for f in fields(c)
                    if not (brief and getattr(c, f.name) == getattr(_CLASS, f.name))
                }
                for name, c in value.items()
            },
            separators=(",", ":"),
        )
    return str(value)


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value


def _decode(kind: str, text: str) -> object:
    match kind:
        case "str":
            return text
        case "int":
            return int(text)
        case "float":
            return float(text)
        case "bool":
            if text not in ("0", "1"):
                raise ValueError("must be 0 or 1")
            return text == "1"
        case "tuple[str, ...]":
            return tuple(filter(None, text.split(",")))
        case _:
            return _classes({}, text)


def _classes(addresses: Mapping[str, Mapping[str, Any]], text: str) -> dict[str, ClassSettings]:
    """The classes whose addresses are told apart, and what the text says of these and of others."""
    try:
        told = {name: _known(name, given) for name, given in json.loads(text).items()}
        names = [*addresses, *(name for name in told if name not in addresses)]
        return {name: ClassSettings(**{**addresses.get(name, {}), **told.get(name, {})}) for name in names}
    except (TypeError, AttributeError) as error:
        raise ValueError(f"no classes that this version knows: {error}") from error


def _known(class_name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What this version knows of a class's settings, lists as tuples; the rest is a newer version's."""
    known = {f.name for f in fields(ClassSettings)}
    for name in sorted(given.keys() - known):
        logging.getLogger(__name__).warning("%s of class %s is no setting of this version: ignored", name, class_name)
    return {n: tuple(v) if isinstance(v, list) else v for n, v in given.items() if n in known}
