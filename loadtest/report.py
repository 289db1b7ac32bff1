"""One page from many results, which begins with the targets, and two results side by side, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.cost_report import cost_table
from loadtest.curves import curves, save
from loadtest.markdown import cell
from loadtest.results import read, rows
from loadtest.scoreboard import table

PAGE = "report.md"
FACTS = ("taken_at", "target", "commit", "cores", "processor", "memory_gib", "load_before", "python", "quick")
"""What of the environment stands beside each table; all of it is in the result's summary."""
BOX = ("cores", "processor", "memory_gib", "system", "python")
"""What of it is the machine."""


def write(folders: Sequence[Path], out: Path) -> Path:
    """The page on these results, with its pictures beside it; returns the page.

    A folder that is written over is one that holds a page. Raises FileNotFoundError for a folder that holds no
    result, FileExistsError for an `out` that holds something else.
    """
    summaries = [(folder, read(folder)) for folder in folders]
    if out.exists() and any(out.iterdir()) and not (out / PAGE).exists():
        raise FileExistsError(f"{out} holds something that is no report")
    out.mkdir(parents=True, exist_ok=True)
    lines = ["# What the load tests measured", "", *table(summaries), "", *_boxes(summaries)]
    lines += ["", "## Every result", "", *_overview(summaries)]
    for folder, summary in summaries:
        # A title of our own making is no anchor that a table could point at.
        lines += ["", f'<a id="{folder.name}"></a>', "", f"## {_title(folder, summary)}", ""]
        lines += [*_verdict(summary), "", *_checks(summary["checks"])]
        if summary["scenario"] == "cost" and not summary["error"]:
            lines += ["", *cost_table(summary["figures"])]
        drawings = curves(summary["scenario"], summary["figures"], list(rows(folder)))
        for number, drawing in enumerate(drawings, 1):
            picture = f"{folder.name}-{number}.png"
            save(drawing, out / picture)
            lines += ["", f"![{summary['scenario']}, curve {number}]({picture})"]
    page = out / PAGE
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


def compared(one: Path, other: Path) -> str:
    """Two results side by side: their claims, their figures with the ratio, and where their environments differ.

    Raises FileNotFoundError for a folder that holds no result.
    """
    a, b = read(one), read(other)
    lines = [
        f"# {_title(one, a)} beside {_title(other, b)}",
        "",
        f"| claim | {one.name} | {other.name} |",
        "| --- | --- | --- |",
    ]
    of_a, of_b = ({check["what"]: check for check in summary["checks"]} for summary in (a, b))
    for what in dict.fromkeys([*of_a, *of_b]):
        lines.append(f"| {cell(what)} | {_measured(of_a.get(what))} | {_measured(of_b.get(what))} |")
    lines += ["", f"| figure | {one.name} | {other.name} | ratio |", "| --- | --- | --- | --- |"]
    numbers_a, numbers_b = dict(_numbers(a["figures"])), dict(_numbers(b["figures"]))
    for name in dict.fromkeys([*numbers_a, *numbers_b]):
        x, y = numbers_a.get(name), numbers_b.get(name)
        ratio = f"{y / x:.3g}" if x and y is not None else ""
        lines.append(f"| {cell(name)} | {_number(x)} | {_number(y)} | {ratio} |")
    differing = [
        f"| {name} | {cell(a['environment'].get(name, ''))} | {cell(b['environment'].get(name, ''))} |"
        for name in dict.fromkeys([*a["environment"], *b["environment"]])
        if a["environment"].get(name) != b["environment"].get(name)
    ]
    lines += ["", "| environment | | |", "| --- | --- | --- |", *differing]
    return "\n".join(lines) + "\n"


def _boxes(summaries: Sequence[tuple[Path, Mapping[str, Any]]]) -> Iterator[str]:
    """The machines the results were taken on, each once, and what no figure of theirs can be above."""
    machines: dict[str, list[str]] = {}
    ceilings: dict[str, str] = {}
    for folder, summary in summaries:
        environment = summary["environment"]
        told = [f"{name} {environment[name]}" for name in BOX if name in environment]
        machines.setdefault("; ".join(told), []).append(folder.name)
        ceilings |= environment.get("ceilings", {})
    for machine, results in machines.items():
        yield f"Taken on: {machine}" + (f" ({', '.join(results)})" if len(machines) > 1 else "") + "."
        yield ""
    if ceilings:
        yield "What this box and its emulator allow, whatever the product does:"
        yield ""
        yield "| ceiling | |"
        yield "| --- | --- |"
        for what, most in ceilings.items():
            yield f"| {cell(what)} | {cell(most)} |"


def _overview(summaries: Sequence[tuple[Path, Mapping[str, Any]]]) -> Iterator[str]:
    yield "| result | scenario | target | taken | verdict | claims that do not hold |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for folder, summary in summaries:
        environment = summary["environment"]
        broken = [check["what"] for check in summary["checks"] if not check["holds"] and not check["shown"]]
        verdict = "failed to measure" if summary["error"] else "passed" if summary["passed"] else "FAILED"
        scenario = summary["scenario"] + (" (short)" if environment.get("quick") else "")
        cells = (scenario, environment.get("target", ""), environment.get("taken_at", ""), verdict)
        yield f"| [{folder.name}](#{folder.name}) | {' | '.join(map(cell, cells))} | {cell('; '.join(broken))} |"


def _verdict(summary: Mapping[str, Any]) -> Iterator[str]:
    environment = summary["environment"]
    yield "; ".join(f"{name} {environment[name]}" for name in FACTS if name in environment)
    for name in ("settings_that_differ", "options", "ceilings"):
        if environment.get(name):
            yield f"\n{name.replace('_', ' ')}: " + ", ".join(f"{k} = {v}" for k, v in environment[name].items())
    if summary["error"]:
        yield f"\nThe measurement failed: {summary['error']}"


def _checks(checks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| | claim | target | measured |"
    yield "| --- | --- | --- | --- |"
    for check in checks:
        sign = "" if check["shown"] else "✓" if check["holds"] else "✗"
        yield f"| {sign} | {cell(check['what'])} | {cell(check['target'])} | {cell(check['measured'])} |"


def _title(folder: Path, summary: Mapping[str, Any]) -> str:
    return f"{summary['scenario']} ({folder.name})"


def _measured(check: Mapping[str, Any] | None) -> str:
    if check is None:
        return ""
    sign = "" if check["shown"] else "✓ " if check["holds"] else "✗ "
    return sign + cell(check["measured"])


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number in a result's figures, by its path."""
    match value:
        case dict():
            for key, part in value.items():
                yield from _numbers(part, f"{name}, {key}" if name else key)
        case list():
            for number, part in enumerate(value):
                yield from _numbers(part, f"{name}[{number}]")
        case int() | float():
            yield name, value


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
