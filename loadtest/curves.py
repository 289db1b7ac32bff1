"""Curves from raw observations. What a row holds says how it is drawn; a scenario may have a drawing of its own.

Matplotlib is loaded when the first curve is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from lab.scale.drawing import scale
from loadtest import drawings
from loadtest.drawings import Draw, plotted

Rows = Sequence[Mapping[str, Any]]

INCHES = (7.5, 3.2)
MOST_LINES = 12
"""A picture with more of them shows nothing."""


def curves(scenario: str, figures: Mapping[str, Any], rows: Rows) -> list[Draw]:
    """The drawings of one result, each on axes of its own; none when nothing in it is a curve."""
    found: list[Draw] = []
    if scenario in OWN and figures:
        found += OWN[scenario](figures)
    requests = _grouped(rows, _request, _request_seconds)
    if requests:
        found.append(_shares(requests, "seconds until the answer"))
    runs = _grouped(rows, _phase, _run_seconds)
    if runs:
        found.append(_shares(runs, "seconds from the acceptance to the last commit"))
    memory = _samples(rows, "resident_mb")
    if memory:
        found.append(plotted("seconds", "MiB resident", memory, styles="-", bottom=0))
        found.append(plotted("seconds", "descriptors", _samples(rows, "descriptors"), styles="-", bottom=0))
    return found


def save(drawing: Draw, path: Path) -> None:
    """Draw into a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, layout="constrained")
    drawing(figure.add_subplot())
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _phase(row: Mapping[str, Any]) -> str:
    return str(row.get("phase") or "all")


def _request(row: Mapping[str, Any]) -> str:
    """Its phase and name, and what it was answered where that is a refusal."""
    status = row.get("status", 0)
    refused = status if isinstance(status, int) and status >= 400 else None
    return ", ".join(str(part) for part in (row.get("phase"), row.get("name"), refused) if part) or "all"


def _request_seconds(row: Mapping[str, Any]) -> float | None:
    """What was not answered at all took no time that says anything."""
    return float(row["seconds"]) if "seconds" in row and (row.get("status") or not row.get("error")) else None


def _run_seconds(row: Mapping[str, Any]) -> float | None:
    if "run_seconds" in row:
        return float(row["run_seconds"])
    if not row.get("created_at") or not row.get("finished_at"):
        return None
    return (datetime.fromisoformat(row["finished_at"]) - datetime.fromisoformat(row["created_at"])).total_seconds()


def _grouped(
    rows: Rows, label: Callable[[Mapping[str, Any]], str], value: Callable[[Mapping[str, Any]], float | None]
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        seconds = value(row)
        if seconds is not None:
            found.setdefault(label(row), []).append(seconds)
    most = sorted(found, key=lambda label: -len(found[label]))[:MOST_LINES]
    return {label: found[label] for label in found if label in most}


def _samples(rows: Rows, what: str) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if what in row and "process" in row:
            found.setdefault(row["process"], []).append((row["at"], row[what]))
    return found


def _shares(groups: Mapping[str, list[float]], across: str) -> Draw:
    """For each group, which share took at most so long."""
    lines = {
        f"{name} (n = {len(values)})": [(v, (n + 1) / len(values)) for n, v in enumerate(sorted(values))]
        for name, values in groups.items()
    }
    low = min(min(values) for values in groups.values())
    wide = low > 0 and max(max(values) for values in groups.values()) > 20 * low
    return plotted(across, "share", lines, styles="-", log="x" if wide else "")


OWN: Mapping[str, Callable[[Mapping[str, Any]], list[Draw]]] = {
    "cost": drawings.cost,
    "history": drawings.history,
    "open": drawings.open_loop,
    "peer-swarmkit": drawings.beside_swarmkit,
    "ramp": drawings.ramp,
    "scale": scale,
    "workers": drawings.workers,
}
"""Scenarios with drawings of their own, made from their figures."""
