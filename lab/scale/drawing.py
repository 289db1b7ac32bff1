"""The curves of a result of `scale`, from its figures: over workers, over bursts, over settings.

Matplotlib is loaded by whoever calls these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loadtest.drawings import Draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def scale(figures: Mapping[str, Any]) -> list[Draw]:
    """Rate, efficiency and waits over workers; what is left of the largest bursts over time; rates over settings."""
    return [
        lambda axes: _levels(axes, figures, "rate", "runs per second", logarithmic=True),
        lambda axes: _levels(axes, figures, "efficiency", "efficiency", logarithmic=False),
        lambda axes: _waits(axes, figures),
        lambda axes: _drains(axes, figures),
        lambda axes: _bursts(axes, figures),
        lambda axes: _sweeps(axes, figures, "rate", "runs/s, the others as shipped"),
        lambda axes: _sweeps(axes, figures, "alone", "runs/s, the others out of the way"),
    ]


def _levels(axes: Axes, figures: Mapping[str, Any], value: str, label: str, *, logarithmic: bool) -> None:
    for name, levels in figures["model"].items():
        axes.plot(*_line(levels, value), "-", label=f"model, {name}", linewidth=1)
    axes.plot(*_line(figures["real"], value), "k.", label="the real code", markersize=5)
    axes.set_xscale("log")
    if logarithmic:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.1)
    _finish(axes, "workers of one run, 500 ms a call", label)


def _waits(axes: Axes, figures: Mapping[str, Any]) -> None:
    for name, levels in figures["model"].items():
        line = axes.plot(*_line(levels, "loaded_wait_p50"), "-", label=f"p50, {name}", linewidth=1)
        axes.plot(*_line(levels, "loaded_wait_p99"), "--", color=line[0].get_color(), linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _finish(axes, "workers, runs arriving at 80 % of what they could do", "seconds until the claim (dashed: p99)")


def _drains(axes: Axes, figures: Mapping[str, Any]) -> None:
    for name, drains in figures["bursts"].items():
        last = max(drains.values(), key=lambda drain: int(drain["runs"]))
        axes.plot(*zip(*last["left"], strict=True), label=f"{last['runs']:,} runs, {name}", linewidth=1)
    axes.set_ylim(bottom=0)
    _finish(axes, "seconds", "runs that have not ended")


def _bursts(axes: Axes, figures: Mapping[str, Any]) -> None:
    for name, drains in figures["bursts"].items():
        points = sorted((float(drain["runs"]), float(drain["drain_seconds"])) for drain in drains.values())
        axes.plot(*zip(*points, strict=True), "o-", label=name, linewidth=1, markersize=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _finish(axes, "runs of a burst", "seconds until the last has ended")


def _sweeps(axes: Axes, figures: Mapping[str, Any], value: str, label: str) -> None:
    for setting, points in figures["sweeps"].items():
        shipped = figures["shipped"][setting]
        line = [(point["value"] / shipped, point[value]) for point in points]
        axes.plot(*zip(*line, strict=True), "o-", label=setting, linewidth=1, markersize=3)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    _finish(axes, "times the shipped value", label)


def _line(levels: Mapping[str, Any], value: str) -> tuple[list[float], list[float]]:
    """Workers, and a value over them."""
    found = sorted((float(level["workers"]), float(level[value])) for level in levels.values())
    return [workers for workers, _ in found], [each for _, each in found]


def _finish(axes: Axes, across: str, up: str) -> None:
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6)
