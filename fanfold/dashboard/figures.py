"""Formats numbers, and a series as a row of blocks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Series = Sequence[float | None]
"""One value or None for each period, oldest first."""

BLOCKS = "▁▂▃▄▅▆▇█"


def short(value: float) -> str:
    """A number in a few characters: `0`, `0.25`, `12.5`, `1234`, `56.7k`, `2.1M`, `5.2e-05`."""
    size = abs(value)
    for limit, divisor, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= limit:
            return f"{value / divisor:.3g}{unit}"
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.3g}"


def blocks(series: Series, cells: int) -> str:
    """The series as a row of blocks, oldest first. A block shows the maximum of its part. No data is a gap."""
    parts = _parts(series, min(cells, len(series)))
    there = [part for part in parts if part is not None]
    if not there:
        return ""
    low, high = min(0.0, *there), max(there)
    steps = len(BLOCKS) - 1
    scale = steps / (high - low) if high > low else 0.0
    return "".join(" " if part is None else BLOCKS[round((part - low) * scale)] for part in parts)


def _parts(series: Series, cells: int) -> Sequence[float | None]:
    if cells <= 0:
        return ()
    bounds = [round(number * len(series) / cells) for number in range(cells + 1)]
    slices = (series[begin:end] for begin, end in itertools.pairwise(bounds))
    return [max((value for value in part if value is not None), default=None) for part in slices]
