"""Drawings of single scenarios, made from their figures: what their curves alone do not show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Draw = Callable[["Axes"], None]
Figures = Mapping[str, Any]
Points = Iterable[tuple[float, float]]


def plotted(
    across: str,
    up: str,
    lines: Mapping[str, Points],
    *,
    styles: Mapping[str, str] | str = "o-",
    log: str = "",
    bottom: float | None = None,
    base: float = 10,
) -> Draw:
    """Lines by their labels, over axes with names; `log` names those that are logarithmic (`x`, `y`, `xy`).

    `styles` are Matplotlib's, one for all or by label.
    """

    def draw(axes: Axes) -> None:
        for label, points in lines.items():
            style = styles if isinstance(styles, str) else styles.get(label, "o-")
            axes.plot(*zip(*sorted(points), strict=True), style, label=label, linewidth=1, markersize=3)
        if "x" in log:
            axes.set_xscale("log", base=base)
        if "y" in log:
            axes.set_yscale("log")
        if bottom is not None:
            axes.set_ylim(bottom=bottom)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=6)

    return draw


def workers(figures: Figures) -> list[Draw]:
    """Runs per second over workers, beside the ideal."""
    levels = {int(name.split()[0]): of for name, of in figures.items() if "ideal" in of}
    lines = {
        way.replace("_", " "): [(count, of[way]) for count, of in levels.items()]
        for way in ("ideal", "end_to_end", "drain")
    }
    styles = {"ideal": "--"}
    return [plotted("workers of one run each", "runs per second", lines, styles=styles)] if levels else []


def cost(figures: Figures) -> list[Draw]:
    """What a million diamonds cost, part by part; and all in all, beside what others take."""
    cases = {name: figures["cases"][name] for name in ("diamond, idle", "diamond, busy") if name in figures["cases"]}

    def parts(axes: Axes) -> None:
        lefts = [0.0] * len(cases)
        for part in dict.fromkeys(part for case in cases.values() for part in case["dollars_per_million"]):
            widths = [case["dollars_per_million"].get(part, 0.0) for case in cases.values()]
            bars = axes.barh(list(cases), widths, left=lefts, label=part, height=0.5)
            lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
        axes.bar_label(bars, labels=[f" {left:.2f}" for left in lefts], fontsize=8)
        axes.margins(x=0.12)
        axes.set_xlabel("USD per million diamonds")
        axes.legend(fontsize=6, ncols=4, loc="upper center", bbox_to_anchor=(0.45, 1.35), frameon=False)

    def beside(axes: Axes) -> None:
        others = next(iter(cases.values()))["others"]
        totals = {name: case["total"] for name, case in cases.items()}
        totals |= {name: dollars for name, dollars in others.items() if dollars is not None}
        axes.bar_label(axes.barh(list(totals), list(totals.values())), fmt=" %.2f", fontsize=8)
        axes.margins(x=0.12)
        axes.set_xlabel("USD per million diamonds")

    return [parts, beside] if cases else []


def history(figures: Figures) -> list[Draw]:
    """The median time of each page and read, at each length of the past."""
    lines = {
        question: [(int(old), 1_000 * found["p50"]) for old, found in of["seconds"].items()]
        for question, of in figures.items()
    }
    return [plotted("old runs", "median in ms", lines, log="x", bottom=0)]


def ramp(figures: Figures) -> list[Draw]:
    """Runs per second over users."""
    lines = {"one run each at a time": [(int(users), of["runs_per_second"]) for users, of in figures["levels"].items()]}
    return [plotted("users", "runs per second", lines, bottom=0)]


def open_loop(figures: Figures) -> list[Draw]:
    """How long a diamond takes over the rate at which they are sent."""
    rates = {float(name.removesuffix("/s")): of for name, of in figures.items() if name.endswith("/s")}
    lines = {share: [(rate, of["run_seconds"][share]) for rate, of in rates.items()] for share in ("p50", "p95", "p99")}
    up = "seconds from the acceptance\nto the last commit"
    return [plotted("submits per second", up, lines, bottom=0)] if rates else []


def beside_swarmkit(figures: Figures) -> list[Draw]:
    """Runs per second of both, round by round, over users and over workers."""
    found = []
    for what in ("users", "workers"):
        if levels := figures.get(what):
            lines = {
                who: [(int(level), rate) for level, of in levels.items() for rate in of[who]]
                for who in ("ours", "theirs")
            }
            found.append(plotted(what, "runs per second", lines, styles={"ours": "o", "theirs": "x"}, bottom=0))
    return found
