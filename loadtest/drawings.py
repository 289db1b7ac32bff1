"""Drawings of single scenarios, made from their figures: what their curves alone do not show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Draw = Callable[["Axes"], None]
Figures = Mapping[str, Any]


def workers(figures: Figures) -> list[Draw]:
    """Runs per second over workers, beside the ideal."""
    levels = {int(name.split()[0]): of for name, of in figures.items() if "ideal" in of}

    def draw(axes: Axes) -> None:
        counts = sorted(levels)
        for way in ("ideal", "end_to_end", "drain"):
            style = "--" if way == "ideal" else "o-"
            axes.plot(counts, [levels[count][way] for count in counts], style, label=way.replace("_", " "), linewidth=1)
        _labelled(axes, "workers of one run each", "runs per second")

    return [draw] if levels else []


def cost(figures: Figures) -> list[Draw]:
    """What a million diamonds cost, part by part; and all in all, beside what others take."""
    cases = {name: figures["cases"][name] for name in ("diamond, idle", "diamond, busy") if name in figures["cases"]}

    def parts(axes: Axes) -> None:
        lefts = dict.fromkeys(cases, 0.0)
        every = list(dict.fromkeys(part for case in cases.values() for part in case["dollars_per_million"]))
        for number, part in enumerate(every):
            widths = [case["dollars_per_million"].get(part, 0.0) for case in cases.values()]
            axes.barh(list(cases), widths, left=list(lefts.values()), label=part, color=f"C{number}", height=0.5)
            lefts = {name: left + width for (name, left), width in zip(lefts.items(), widths, strict=True)}
        for number, left in enumerate(lefts.values()):
            axes.text(left, number, f" {left:.2f}", va="center", fontsize=8)
        axes.set_xlim(right=1.12 * max(lefts.values()))
        axes.set_xlabel("USD per million diamonds")
        axes.legend(fontsize=6, ncols=4, loc="upper center", bbox_to_anchor=(0.45, 1.35), frameon=False)

    def beside(axes: Axes) -> None:
        others = next(iter(cases.values()))["others"]
        totals = {name: case["total"] for name, case in cases.items()}
        totals |= {name: dollars for name, dollars in others.items() if dollars is not None}
        bars = axes.barh(list(totals), list(totals.values()), color=["C0"] * len(cases) + ["0.6"] * len(others))
        axes.bar_label(bars, fmt=" %.2f", fontsize=8)
        axes.set_xlim(right=1.1 * max(totals.values()))
        axes.set_xlabel("USD per million diamonds")

    return [parts, beside] if cases else []


def history(figures: Figures) -> list[Draw]:
    """The median time of each page and read, at each length of the past."""
    medians = {question: {int(n): q["p50"] for n, q in of["seconds"].items()} for question, of in figures.items()}

    def draw(axes: Axes) -> None:
        for question, of in medians.items():
            axes.plot(sorted(of), [1_000 * of[old] for old in sorted(of)], "o-", label=question, linewidth=1)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        _labelled(axes, "old runs", "median in ms")

    return [draw]


def ramp(figures: Figures) -> list[Draw]:
    """Runs per second over users."""
    levels = {int(users): of for users, of in figures["levels"].items()}

    def draw(axes: Axes) -> None:
        users = sorted(levels)
        axes.plot(users, [levels[count]["runs_per_second"] for count in users], "o-", linewidth=1)
        axes.set_ylim(bottom=0)
        _labelled(axes, "users, each with one run at a time", "runs per second", legend=False)

    return [draw]


def open_loop(figures: Figures) -> list[Draw]:
    """How long a diamond takes over the rate at which they are sent."""
    rates = {float(name.removesuffix("/s")): of for name, of in figures.items() if name.endswith("/s")}

    def draw(axes: Axes) -> None:
        for share in ("p50", "p95", "p99"):
            points = [rates[rate]["run_seconds"][share] for rate in sorted(rates)]
            axes.plot(sorted(rates), points, "o-", label=share, linewidth=1)
        axes.set_ylim(bottom=0)
        _labelled(axes, "submits per second", "seconds from the acceptance\nto the last commit")

    return [draw] if rates else []


def beside_swarmkit(figures: Figures) -> list[Draw]:
    """Runs per second of both, round by round, over users and over workers."""

    def draw(what: str) -> Draw:
        levels: dict[int, Mapping[str, Sequence[float]]] = {int(n): of for n, of in figures[what].items()}

        def of_both(axes: Axes) -> None:
            for who, style in (("ours", "o"), ("theirs", "x")):
                points = [(level, rate) for level in sorted(levels) for rate in levels[level][who]]
                axes.plot(*zip(*points, strict=True), style, label=who, markersize=5)
            axes.set_ylim(bottom=0)
            _labelled(axes, what, "runs per second")

        return of_both

    return [draw(what) for what in ("users", "workers") if figures.get(what)]


def _labelled(axes: Axes, across: str, up: str, *, legend: bool = True) -> None:
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.3)
    if legend:
        axes.legend(fontsize=7)
