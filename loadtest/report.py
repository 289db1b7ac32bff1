"""One page from many results, and two results side by side, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.curves import curves, save
from loadtest.results import read, rows

PAGE = "report.md"
FACTS = ("taken_at", "target", "commit", "cores", "processor", "memory_gib", "load_before", "python", "quick")
"""What of the environment stands beside each table; all of it is in the result's summary."""


def write(folders: Sequence[Path], out: Path) -> Path:
    """The page on these results, with its pictures beside it; returns the page.

    A folder that is written over is one that holds a page. Raises FileNotFoundError for a folder that holds no
    result, FileExistsError for an `out` that holds something else.
    """
    summaries = [(folder, read(folder)) for folder in folders]
    if out.exists() and any(out.iterdir()) and not (out / PAGE).exists():
        raise FileExistsError(f"{out} holds something that is no report")
    out.mkdir(parents=True, exist_ok=True)
    lines = ["# What the load tests measured", "", *_overview(summaries)]
    for folder, summary in summaries:
        lines += ["", f"## {_title(folder, summary)}", "", *_verdict(summary), "", *_checks(summary["checks"])]
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
        lines.append(f"| {_cell(what)} | {_measured(of_a.get(what))} | {_measured(of_b.get(what))} |")
    lines += ["", f"| figure | {one.name} | {other.name} | ratio |", "| --- | --- | --- | --- |"]
    numbers_a, numbers_b = dict(_numbers(a["figures"])), dict(_numbers(b["figures"]))
    for name in dict.fromkeys([*numbers_a, *numbers_b]):
        x, y = numbers_a.get(name), numbers_b.get(name)
        ratio = f"{y / x:.3g}" if x and y is not None else ""
        lines.append(f"| {_cell(name)} | {_number(x)} | {_number(y)} | {ratio} |")
    differing = [
        f"| {name} | {_cell(a['environment'].get(name, ''))} | {_cell(b['environment'].get(name, ''))} |"
        for name in dict.fromkeys([*a["environment"], *b["environment"]])
        if a["environment"].get(name) != b["environment"].get(name)
    ]
    lines += ["", "| environment | | |", "| --- | --- | --- |", *differing]
    return "\n".join(lines) + "\n"


def _overview(summaries: Sequence[tuple[Path, Mapping[str, Any]]]) -> Iterator[str]:
    yield "| scenario | target | taken | verdict | claims that do not hold |"
    yield "| --- | --- | --- | --- | --- |"
    for _, summary in summaries:
        environment = summary["environment"]
        broken = [check["what"] for check in summary["checks"] if not check["holds"] and not check["shown"]]
        verdict = "failed to measure" if summary["error"] else "passed" if summary["passed"] else "FAILED"
        cells = (summary["scenario"], environment.get("target", ""), environment.get("taken_at", ""), verdict)
        yield f"| {' | '.join(map(_cell, cells))} | {_cell('; '.join(broken))} |"


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
        yield f"| {sign} | {_cell(check['what'])} | {_cell(check['target'])} | {_cell(check['measured'])} |"


def _title(folder: Path, summary: Mapping[str, Any]) -> str:
    return f"{summary['scenario']} ({folder.name})"


def _measured(check: Mapping[str, Any] | None) -> str:
    if check is None:
        return ""
    sign = "" if check["shown"] else "✓ " if check["holds"] else "✗ "
    return sign + _cell(check["measured"])


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


def _cell(value: object) -> str:
    """Text that ends no cell of a table."""
    return str(value).replace("|", "\\|").replace("\n", " ")
