"""Quantiles of what was measured, always with how many there were."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """`n` values by their median, tail and maximum, in the unit they were measured in."""

    n: int
    p50: float
    p95: float
    p99: float
    maximum: float

    def __str__(self) -> str:
        return f"p50 {self.p50:.3g}, p95 {self.p95:.3g}, p99 {self.p99:.3g}, max {self.maximum:.3g} (n = {self.n})"


def quantiles(values: Iterable[float]) -> Quantiles:
    """The quantiles of some values. Raises ValueError when there are none: no figure is better than a made-up one."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("nothing was measured")
    return Quantiles(
        n=len(ordered),
        p50=quantile(ordered, 0.50),
        p95=quantile(ordered, 0.95),
        p99=quantile(ordered, 0.99),
        maximum=ordered[-1],
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the ordered values that at least `share` of them do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
