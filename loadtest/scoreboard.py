"""How results stand against the targets: a row for each, with what was measured, by which result, of which command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.markdown import cell
from loadtest.targets import Goal

Summaries = Sequence[tuple[Path, Mapping[str, Any]]]

BREAK = "<br>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one command's newest result says of a row: its checks, none where there is no such result."""

    command: str
    folder: Path | None
    quick: bool
    checks: Sequence[Mapping[str, Any]]

    @property
    def missing(self) -> bool:
        """Whether nothing was measured."""
        return not self.checks

    @property
    def held(self) -> bool | None:
        """Whether its claims hold; None where it claims nothing, as the short version of what takes time."""
        claims = [check["holds"] for check in self.checks if not check["shown"]]
        if not all(claims):
            return False
        return True if claims and len(claims) == len(_figures(self.checks)) else None


def table(summaries: Summaries) -> Iterator[str]:
    """The table of targets, as lines of Markdown: every target has its row, what was not measured says so."""
    yield "| figure | to reach | measured | met | by |"
    yield "| --- | --- | --- | --- | --- |"
    for aim in Goal:
        parts = [_part(aim, command, summaries) for command in aim.commands]
        measured = BREAK.join(line for part in parts for line in _measured(part))
        by = BREAK.join(_by(part) for part in parts)
        yield f"| {cell(aim.figure)} | {cell(aim.target)} | {measured} | {_met(parts)} | {by} |"


def _part(aim: Goal, command: str, summaries: Summaries) -> Part:
    """The best result there is for a command: one on its target before others, a full one before a short one."""
    scenario, *options = command.split()
    target = options[options.index("--target") + 1] if "--target" in options else "emulator"

    def worth(found: tuple[Path, Mapping[str, Any]]) -> tuple[bool, bool, str]:
        environment = found[1]["environment"]
        return environment.get("target") == target, not environment.get("quick"), environment.get("taken_at", "")

    candidates = [
        (folder, summary)
        for folder, summary in summaries
        if summary["scenario"] == scenario and any(check.get("aim") == aim for check in summary["checks"])
    ]
    if not candidates:
        return Part(command=command, folder=None, quick=False, checks=())
    folder, summary = max(candidates, key=worth)
    checks = [check for check in summary["checks"] if check.get("aim") == aim]
    return Part(command=command, folder=folder, quick=bool(summary["environment"].get("quick")), checks=checks)


def _figures(checks: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Checks that have a target: what is only told has none."""
    return [check for check in checks if check["target"]]


def _measured(part: Part) -> Iterator[str]:
    if part.missing:
        yield f"*{cell(part.command.split()[0])}: not measured*"
    for check in part.checks:
        many = "" if check.get("n") is None else f", n = {check['n']:,}"
        target = f" ({cell(check['target'])}{many})" if check["target"] else ""
        yield f"{cell(check['what'])}: **{cell(check['measured'])}**{target}"


def _met(parts: Sequence[Part]) -> str:
    if any(part.held is False for part in parts):
        return "**not met**"
    if all(part.missing for part in parts):
        return "missing"
    if any(part.missing for part in parts):
        return "part missing"
    if not all(part.held for part in parts):
        return "short version: shown only"
    return "met, short version" if any(part.quick for part in parts) else "met"


def _by(part: Part) -> str:
    quick = " --quick" if part.quick else ""
    where = "" if part.folder is None else f" → [{part.folder.name}](#{part.folder.name})"
    return f"`python -m loadtest {part.command}{quick}`{where}"
