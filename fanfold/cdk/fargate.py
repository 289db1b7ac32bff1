"""The containers of a class of processes: size, number and scaling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final

from fanfold.cdk.type_checks import check_kinds

MEMORY_MB: Final[Mapping[int, range]] = MappingProxyType(
    {
        256: range(512, 2_049, 512),
        512: range(1_024, 4_097, 1_024),
        1_024: range(2_048, 8_193, 1_024),
        2_048: range(4_096, 16_385, 1_024),
        4_096: range(8_192, 30_721, 1_024),
        8_192: range(16_384, 61_441, 4_096),
        16_384: range(32_768, 122_881, 8_192),
    }
)
"""Fargate's memory sizes by CPU size; 1,024 is one vCPU (Amazon ECS task definitions)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fargate:
    """Containers of `fanfold worker` on Fargate, each with `concurrency` concurrent runs.

    There are at least `min_tasks`. While a message waits for longer than `scale_after_seconds`, more start, up to
    `max_tasks`. When the class has nothing to do, all beyond `min_tasks` stop. Without an `image` CDK builds the
    checkout's Dockerfile. Raises ValueError naming a wrong field.
    """

    cpu: int = 1_024
    memory_mb: int = 2_048
    concurrency: int = 32
    min_tasks: int = 0
    max_tasks: int = 10
    scale_after_seconds: int = 30
    image: str = ""

    def __post_init__(self) -> None:
        if self.cpu not in MEMORY_MB:
            raise ValueError(f"cpu is {self.cpu}; Fargate has {', '.join(map(str, MEMORY_MB))}")
        sizes = MEMORY_MB[self.cpu]
        # 512 MB, then steps of 1,024: the smallest size alone is no arithmetic series.
        if self.memory_mb not in sizes or (self.cpu == 256 and self.memory_mb == 1_536):
            raise ValueError(f"memory_mb is {self.memory_mb}; with cpu {self.cpu} it is {sizes[0]} to {sizes[-1]}")
        if not 0 <= self.min_tasks <= self.max_tasks or self.max_tasks < 1:
            raise ValueError("min_tasks must be from 0 to max_tasks, and max_tasks at least 1")
        if self.concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        if self.scale_after_seconds < 1:
            raise ValueError("scale_after_seconds must be at least 1")


def fargate_of(value: Any) -> Fargate:
    """The containers an object describes. Raises ValueError naming a field that is wrong."""
    known = {f.name for f in fields(Fargate)}
    if not isinstance(value, Mapping):
        raise ValueError("fargate must be an object")
    if unknown := set(value) - known:
        raise ValueError(f"fargate: unknown {sorted(unknown)}; known are {sorted(known)}")
    try:
        check_kinds(value, Fargate)
        return Fargate(**value)
    except ValueError as error:
        raise ValueError(f"fargate: {error}") from error
