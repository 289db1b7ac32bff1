"""The classes of workers, as the project or the context defines them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Final

from fanfold.cdk.fargate import Fargate, fargate_of
from fanfold.cdk.type_checks import check_kinds, check_whole
from fanfold.engine.admission.lanes import MAX_LANES, shares
from fanfold.engine.record.messages import DEAD, RESUME
from fanfold.engine.rules.engine_limits import MAX_DELAY

MAX_FUNCTION_SECONDS: Final = 900
"""Lambda's longest timeout (Lambda quotas)."""
STEP_MARGIN_SECONDS: Final = 60
"""Part of a function's timeout for commits and hand-overs. The longest step is the timeout less this."""
PROCESS_STEP_SECONDS: Final = 86_400
"""The default longest step in a class of processes: a day, like the default timeout of a run."""
MAX_STEP_SECONDS: Final = 365 * 86_400
"""No step is longer than a run may live by default."""
BATCH_MARGIN_SECONDS: Final = 45
"""Part of a batch function's timeout to begin and to record results, beside an attempt at an item."""
MAPPING_CONCURRENCY: Final = range(2, 1001)
"""The range of an event source mapping's MaximumConcurrency (Lambda's SQS scaling page)."""
BATCH_SIZES: Final = range(1, 11)
"""Messages in one delivery: SQS's largest batch is ten, without a window; a fuller one would cost latency."""
MEMORY_MB: Final = range(128, 10_241)
"""The range of a function's memory (Lambda quotas)."""
LANES: Final = ("high", "normal", "low")
CONCURRENCY: Final = 100
"""The default of a class."""
LOCAL_CONCURRENCY: Final = 24
"""The most on an emulator, which starts a process of about 40 MB per concurrent batch."""

TARGET_SECONDS: Final[Mapping[str, int]] = MappingProxyType({"high": 60, "normal": 300, "low": 3_600, RESUME: 60})
"""Seconds that a run may wait in a lane before an alarm, by the lane's name; other lanes are like `normal`."""

POOLS: Final = ("lambda", "process")
MAX_SCALED_LANES: Final = 4
"""With `resume` these are five queues of two metrics; an alarm on metric math takes at most ten (CloudWatch quotas)."""
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,30}")


def _shared(concurrency: int, lanes: tuple[str, ...]) -> Mapping[str, int]:
    """Split a concurrency over lanes; the best lane gets the largest share."""
    parts = shares(concurrency, len(lanes), least=MAPPING_CONCURRENCY.start)
    return MappingProxyType(dict(zip(lanes, parts, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassConfig:
    """One class of workers.

    lanes: concurrent batches by lane, best lane first. resume: the same for the resume queue, at least as many as all
    lanes together (R7). pool: `lambda`, or `process` without a function and event source mappings. max_step_seconds: 0
    means the longest that the pool allows. batch_size: messages in one invocation. item_seconds: the longest attempt
    at an item of a distributed map. emulated_batches: concurrent batches of a map on an emulator. map_concurrency:
    reserved concurrency of the function for batches, for all maps of the class. targets: seconds that a run may wait,
    by lane or `resume`, before an alarm (default: `TARGET_SECONDS`). fargate: containers that the stack runs.
    Raises ValueError naming what AWS or a rule of ours refuses.
    """

    lanes: Mapping[str, int] = field(default_factory=lambda: _shared(CONCURRENCY // 2, LANES))
    resume: int = CONCURRENCY // 2
    pool: str = "lambda"
    max_queue_depth: int = 10_000
    max_step_seconds: int = 0
    batch_size: int = BATCH_SIZES[-1]
    memory_mb: int = 1_024
    timeout_seconds: int = MAX_FUNCTION_SECONDS
    reserved_concurrency: int | None = None
    item_seconds: int = 240
    emulated_batches: int = 4
    map_concurrency: int | None = None
    targets: Mapping[str, int] = field(default_factory=dict)
    fargate: Fargate | None = None

    def __post_init__(self) -> None:
        self._check_lanes()
        if self.pool not in POOLS:
            raise ValueError(f"pool is {self.pool!r}; there are: {', '.join(POOLS)}")
        if self.memory_mb not in MEMORY_MB:
            raise ValueError(f"memory_mb must be from {MEMORY_MB[0]} to {MEMORY_MB[-1]:,}")
        if self.max_queue_depth < 0:
            raise ValueError("max_queue_depth must be at least 0, which is no bound")
        if self.emulated_batches < 1:
            raise ValueError("emulated_batches must be at least 1")
        if self.map_concurrency is not None and self.map_concurrency < 1:
            raise ValueError("map_concurrency must be at least 1")
        if self.batch_size not in BATCH_SIZES:
            raise ValueError(f"batch_size must be from {BATCH_SIZES[0]} to {BATCH_SIZES[-1]}")
        if not STEP_MARGIN_SECONDS < self.timeout_seconds <= MAX_FUNCTION_SECONDS:
            raise ValueError(f"timeout_seconds must be over {STEP_MARGIN_SECONDS}, at most {MAX_FUNCTION_SECONDS}")
        if not 0 < self.item_seconds <= MAX_FUNCTION_SECONDS - BATCH_MARGIN_SECONDS:
            raise ValueError(f"item_seconds must be from 1 to {MAX_FUNCTION_SECONDS - BATCH_MARGIN_SECONDS}")
        self._check_steps()
        self._check_targets()
        if self.fargate is not None and self.pool != "process":
            raise ValueError('fargate is for pool = "process"')
        if self.fargate is not None and len(self.lanes) > MAX_SCALED_LANES:
            raise ValueError(f"fargate takes at most {MAX_SCALED_LANES} lanes: an alarm looks at ten metrics")
        if self.reserved_concurrency is not None and self.pool != "lambda":
            raise ValueError(f"reserved_concurrency is a function's; pool {self.pool!r} has none")
        if self.reserved_concurrency is not None and self.reserved_concurrency < self.concurrency:
            raise ValueError(
                f"reserved_concurrency {self.reserved_concurrency} is less than the mappings' {self.concurrency}: "
                "they would be throttled, and throttled deliveries end in the dead-letter queue"
            )

    def _check_lanes(self) -> None:
        names = list(self.lanes)
        if not names or {RESUME, DEAD} & set(names):
            raise ValueError(f"a class needs lanes, and none of them is named {RESUME!r} or {DEAD!r}")
        if len(names) > MAX_LANES:
            raise ValueError(f"a class has at most {MAX_LANES} lanes, not {len(names)}")
        if wrong := [name for name in names if not _NAME.fullmatch(name)]:
            raise ValueError(f"a lane's name is a-z, then a-z, 0-9 and -, at most 31; not {wrong[0]!r}")
        for name, most in {**self.lanes, RESUME: self.resume}.items():
            if most not in MAPPING_CONCURRENCY:
                raise ValueError(f"concurrency of {name} is {most}; a mapping's MaximumConcurrency is 2–1000")
        most_first = list(self.lanes.values())
        if most_first != sorted(most_first, reverse=True) or (len(names) > 1 and most_first[0] == most_first[-1]):
            raise ValueError(f"lanes are in order, best first, and the best has the most: not {dict(self.lanes)}")
        if self.resume < sum(most_first):
            raise ValueError(f"resume has {self.resume}, the lanes {sum(most_first)}: it needs at least half")

    def _check_targets(self) -> None:
        if not isinstance(self.targets, Mapping):
            raise ValueError("targets: must be an object, seconds by lane")
        if unknown := sorted(set(self.targets) - {*self.lanes, RESUME}):
            raise ValueError(f"targets: there is no lane {unknown[0]!r}")
        for lane, seconds in self.targets.items():
            check_whole(f"targets: {lane}", seconds)
            if seconds < 1:
                raise ValueError(f"targets: {lane} is at least a second, not {seconds}")

    def _check_steps(self) -> None:
        longest = self.timeout_seconds - STEP_MARGIN_SECONDS if self.pool == "lambda" else MAX_STEP_SECONDS
        if not 0 <= self.max_step_seconds <= longest:
            hint = '; pool = "process" takes longer ones' if self.pool == "lambda" else ""
            raise ValueError(f"max_step_seconds is {self.max_step_seconds}, the most is {longest}{hint}")
        if self.max_step_seconds == 0:
            object.__setattr__(self, "max_step_seconds", longest if self.pool == "lambda" else PROCESS_STEP_SECONDS)

    @property
    def concurrency(self) -> int:
        """The most batches the class works on at once, all mappings together."""
        return sum(self.lanes.values()) + self.resume

    def target_seconds(self, role: str) -> int:
        """Seconds that a run may wait for a worker in this lane, or in `resume`."""
        return self.targets.get(role, TARGET_SECONDS.get(role, TARGET_SECONDS["normal"]))

    def age_limit_seconds(self, role: str) -> int:
        """The age in seconds above which a message for functions is too old: every normal delay, and the target.

        A message stays until its run ends or suspends, a worker's whole life at most. Its age counts from its sending,
        and wakes, delayed submits and copies after an outage are sent with a delay.
        """
        return int(MAX_DELAY.total_seconds()) + self.timeout_seconds + self.target_seconds(role)

    @property
    def batch_seconds(self) -> int:
        """The timeout of the function that works on a batch of a map's items."""
        return self.item_seconds + BATCH_MARGIN_SECONDS


def classes_of(given: Mapping[str, Any], *, defaults: Mapping[str, Any], local: bool) -> dict[str, ClassConfig]:
    """The classes that a document describes, by name; `defaults` are fields that a class need not say.

    Of each class `lanes` is a list of names, best first, over which `concurrency` is split, or an object with a number
    for each. A `local` class has little of it. Raises ValueError naming the class and what is wrong.
    """
    if not given:
        raise ValueError("classes: there is none")
    return {name: _class(name, source, defaults=defaults, local=local) for name, source in given.items()}


def _class(name: str, source: Any, *, defaults: Mapping[str, Any], local: bool) -> ClassConfig:
    try:
        if not _NAME.fullmatch(name):
            raise ValueError("a class's name is a-z, then a-z, 0-9 and -, at most 31")
        if not isinstance(source, Mapping):
            raise ValueError("must be an object")
        known = {f.name for f in fields(ClassConfig)} | {"concurrency"}
        if unknown := set(source) - known:
            raise ValueError(f"unknown {sorted(unknown)}; known are {sorted(known)}")
        given = {**defaults, **source}
        check_kinds(given, ClassConfig)
        if given.get("fargate") is not None:
            given["fargate"] = fargate_of(given["fargate"])
        lanes = given.pop("lanes", list(LANES))
        if isinstance(lanes, Mapping):
            if "concurrency" in given:
                raise ValueError("concurrency is split over a list of lanes; here each lane has its own")
            for lane, most in lanes.items():
                check_whole(f"{lane}'s concurrency", most)
            given.setdefault("resume", sum(lanes.values()))
        elif isinstance(lanes, list) and lanes and len(set(map(str, lanes))) == len(lanes):
            total = given.pop("concurrency", CONCURRENCY)
            check_whole("concurrency", total)
            lanes = _split(total, given.get("resume"), tuple(map(str, lanes)))
            given.setdefault("resume", total - sum(lanes.values()))
        else:
            raise ValueError("lanes is a list of names, best first, or a number for each name")
        config = ClassConfig(**given, lanes=lanes)
        return _reduced(config) if local else config
    except (TypeError, ValueError) as error:
        raise ValueError(f"classes: {name}: {error}") from error


def _split(total: int, resume: int | None, lanes: tuple[str, ...]) -> Mapping[str, int]:
    """The lanes' shares of a class's concurrency: of half of it, or of what `resume` leaves where that is said."""
    least = MAPPING_CONCURRENCY.start * len(lanes) + (len(lanes) > 1)
    many = f"{len(lanes)} lane" + "s" * (len(lanes) > 1)
    if resume is None and total < 2 * least:
        raise ValueError(f"concurrency {total} is too little for {many}: {2 * least} is the least")
    rest = total // 2 if resume is None else total - resume
    if rest < least:
        raise ValueError(f"resume leaves {rest} of {total} for {many}: {least} is the least")
    return _shared(rest, lanes)


def _reduced(config: ClassConfig) -> ClassConfig:
    """The class with no more than an emulator can start, its lanes in the same order."""
    if config.concurrency <= LOCAL_CONCURRENCY:
        return config
    lanes = _shared(LOCAL_CONCURRENCY // 2, tuple(config.lanes))
    return replace(config, lanes=lanes, resume=LOCAL_CONCURRENCY - sum(lanes.values()))
