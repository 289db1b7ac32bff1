"""The curves of a result of `scale`, from its figures: over workers, over bursts, over settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadtest.drawings import Draw, plotted


def scale(figures: Mapping[str, Any]) -> list[Draw]:
    """Rate, efficiency and waits over workers; what is left of the largest bursts over time; rates over settings."""
    model = {f"model, {name}": levels for name, levels in figures["model"].items()}
    both = {**model, "the real code": figures["real"]}
    styles = {**dict.fromkeys(model, "-"), "the real code": "k."}
    workers = "workers of one run, 500 ms a call"
    waits = {
        f"{share}, {name}": _over_workers(levels, f"loaded_wait_{share}")
        for name, levels in figures["model"].items()
        for share in ("p50", "p99")
    }
    bursts = {name: list(drains.values()) for name, drains in figures["bursts"].items()}
    largest = {name: max(drains, key=lambda drain: int(drain["runs"])) for name, drains in bursts.items()}

    def over_workers(value: str) -> dict[str, list[tuple[float, float]]]:
        return {name: _over_workers(levels, value) for name, levels in both.items()}

    def over_settings(value: str) -> dict[str, list[tuple[float, float]]]:
        shipped = figures["shipped"]
        return {
            setting: [(point["value"] / shipped[setting], point[value]) for point in points]
            for setting, points in figures["sweeps"].items()
        }

    return [
        plotted(workers, "runs per second", over_workers("rate"), styles=styles, log="xy"),
        plotted(workers, "efficiency", over_workers("efficiency"), styles=styles, log="x", bottom=0),
        plotted("workers, runs arriving at 80 % of what they could do", "seconds until the claim", waits, log="xy"),
        plotted(
            "seconds",
            "runs that have not ended",
            {f"{drain['runs']:,} runs, {name}": drain["left"] for name, drain in largest.items()},
            styles="-",
            bottom=0,
        ),
        plotted(
            "runs of a burst",
            "seconds until the last has ended",
            {name: [(drain["runs"], drain["drain_seconds"]) for drain in drains] for name, drains in bursts.items()},
            log="xy",
        ),
        *(
            plotted("times the shipped value", label, over_settings(value), log="xy", base=2)
            for value, label in (
                ("rate", "runs/s, the others as shipped"),
                ("alone", "runs/s, the others out of the way"),
            )
        ),
    ]


def _over_workers(levels: Mapping[str, Any], value: str) -> list[tuple[float, float]]:
    return [(level["workers"], level[value]) for level in levels.values()]
