"""Load tests: each scenario keeps raw data, environment and verdict, and exits with 1 when a claim does not hold."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from loadtest.results import RESULTS, read
from loadtest.scenario import Scenario, perform
from loadtest.scenarios import SCENARIOS

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help=__doc__, rich_markup_mode=None, pretty_exceptions_enable=False
)


def _command(name: str, scenario: Scenario) -> None:
    def command(
        target: Annotated[str, typer.Option(metavar="memory|emulator|URL", help="What to load.")] = "emulator",
        out: Annotated[Path | None, typer.Option(help="The result's folder; default: results/<date>-…")] = None,
        quick: Annotated[bool, typer.Option("--quick", help="The short version.")] = False,
    ) -> None:
        if target not in ("memory", "emulator") and not target.startswith(("http://", "https://")):
            raise typer.BadParameter(f"the target is memory, emulator or a URL, not {target!r}")
        folder = out or _folder(name, target)
        passed = perform(scenario, name=name, kind=target, folder=folder, quick=quick)
        _show(folder)
        sys.exit(0 if passed else 1)

    app.command(name, help=sys.modules[scenario.__module__].__doc__)(command)


for _name, _scenario in SCENARIOS.items():
    _command(_name, _scenario)


@app.command()
def show(folder: Annotated[Path, typer.Argument(help="A result's folder.")]) -> None:
    """Show the claims of one result."""
    _show(folder)


def _folder(scenario: str, target: str) -> Path:
    kind = target if target in ("memory", "emulator") else "url"
    return RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}-{scenario}-{kind}"


def _show(folder: Path) -> None:
    summary = read(folder)
    table = Table("", "claim", "target", "measured", box=None, pad_edge=False)
    for check in summary["checks"]:
        sign = " " if check["shown"] else "✓" if check["holds"] else "✗"
        table.add_row(sign, check["what"], check["target"], check["measured"])
    console = Console()
    console.print(table)
    console.print(f"{'passed' if summary['passed'] else 'FAILED'}: {folder}")


if __name__ == "__main__":
    app(prog_name="python -m loadtest")
