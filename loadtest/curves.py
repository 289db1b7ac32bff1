"""Curves from raw observations. What a row holds says how it is drawn; a scenario may have a drawing of its own.

Matplotlib is loaded when the first curve is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[Mapping[str, Any]]
Draw = Callable[["Axes"], None]

INCHES = (7.5, 3.2)
MOST_LINES = 12
"""A picture with more of them shows nothing."""


def curves(scenario: str, figures: Mapping[str, Any], rows: Rows) -> list[Draw]:
    """The drawings of one result, each on axes of its own; none when nothing in it is a curve."""
    found: list[Draw] = []
    if scenario in OWN and figures:
        found += OWN[scenario](figures)
    requests = _grouped(rows, ("phase", "name"), _request_seconds)
    if requests:
        found.append(lambda axes: _shares(axes, requests, "seconds until the answer"))
    runs = _grouped(rows, ("phase",), _run_seconds)
    if runs:
        found.append(lambda axes: _shares(axes, runs, "seconds from the acceptance to the last commit"))
    memory = _samples(rows, "resident_mb")
    if memory:
        found.append(lambda axes: _over_time(axes, memory, "MiB resident"))
        found.append(lambda axes: _over_time(axes, _samples(rows, "descriptors"), "descriptors"))
    return found


def save(drawing: Draw, path: Path) -> None:
    """Draw into a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, layout="constrained")
    drawing(figure.add_subplot())
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _request_seconds(row: Mapping[str, Any]) -> float | None:
    return float(row["seconds"]) if "seconds" in row and not row.get("error") else None


def _run_seconds(row: Mapping[str, Any]) -> float | None:
    if not row.get("created_at") or not row.get("finished_at"):
        return None
    return (datetime.fromisoformat(row["finished_at"]) - datetime.fromisoformat(row["created_at"])).total_seconds()


def _grouped(
    rows: Rows, names: Iterable[str], value: Callable[[Mapping[str, Any]], float | None]
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        seconds = value(row)
        if seconds is not None:
            label = ", ".join(str(row[name]) for name in names if row.get(name)) or "all"
            found.setdefault(label, []).append(seconds)
    most = sorted(found, key=lambda label: -len(found[label]))[:MOST_LINES]
    return {label: found[label] for label in found if label in most}


def _samples(rows: Rows, what: str) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if what in row and "process" in row:
            found.setdefault(row["process"], []).append((row["at"], row[what]))
    return found


def _shares(axes: Axes, groups: Mapping[str, list[float]], label: str) -> None:
    """For each group, which share took at most so long."""
    for name, values in groups.items():
        ordered = sorted(values)
        shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
        axes.step(ordered, shares, where="post", label=f"{name} (n = {len(ordered)})", linewidth=1)
    low = min(min(values) for values in groups.values())
    if low > 0 and max(max(values) for values in groups.values()) > 20 * low:
        axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel("share")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6)


def _over_time(axes: Axes, groups: Mapping[str, list[tuple[float, float]]], label: str) -> None:
    for name, points in groups.items():
        axes.plot(*zip(*points, strict=True), label=name, linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6)


def _workers(figures: Mapping[str, Any]) -> list[Draw]:
    """Runs per second over workers, beside the ideal."""
    levels = {int(name.split()[0]): of for name, of in figures.items() if "ideal" in of}

    def draw(axes: Axes) -> None:
        counts = sorted(levels)
        for way in ("ideal", "end_to_end", "drain"):
            style = "--" if way == "ideal" else "o-"
            axes.plot(counts, [levels[count][way] for count in counts], style, label=way.replace("_", " "), linewidth=1)
        axes.set_xlabel("workers")
        axes.set_ylabel("runs per second")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)

    return [draw] if levels else []


def _cost(figures: Mapping[str, Any]) -> list[Draw]:
    """What a million diamonds cost, part by part, beside what others take."""
    cases = {name: figures["cases"][name] for name in ("diamond, busy", "diamond, idle") if name in figures["cases"]}

    def draw(axes: Axes) -> None:
        parts = list(dict.fromkeys(part for case in cases.values() for part in case["dollars_per_million"]))
        lefts = dict.fromkeys(cases, 0.0)
        for part in parts:
            widths = [case["dollars_per_million"].get(part, 0.0) for case in cases.values()]
            axes.barh(list(cases), widths, left=list(lefts.values()), label=part)
            lefts = {name: left + width for (name, left), width in zip(lefts.items(), widths, strict=True)}
        for name, dollars in next(iter(cases.values()))["others"].items():
            if dollars is not None:
                axes.barh([name], [dollars], color="0.6")
        axes.set_xlabel("USD per million diamonds")
        axes.legend(fontsize=6)

    return [draw] if cases else []


OWN: Mapping[str, Callable[[Mapping[str, Any]], list[Draw]]] = {"cost": _cost, "workers": _workers}
"""Scenarios with drawings of their own, made from their figures."""
