"""Load tests: each scenario keeps raw data, environment and verdict.

Exit statuses: 0 every claim holds, 1 one does not, 2 usage or a measurement that failed, 130 interrupted.
"""

from __future__ import annotations

import inspect
import pstats
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtest.options import Numbers, Option, options_of
from loadtest.profiling import What, profiled, told
from loadtest.report import compared, write
from loadtest.results import RESULTS, SUMMARY, read
from loadtest.scenario import Scenario, perform
from loadtest.scenarios import SCENARIOS

SMALLEST = {int: 0, float: 0.001}
"""What a number on the command line has to be at least: nothing lasts no time at all."""

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help=__doc__, rich_markup_mode=None, pretty_exceptions_enable=False
)


def _command(name: str, scenario: Scenario) -> None:
    def command(target: str, out: Path | None, quick: bool, **options: Any) -> None:
        if target not in ("memory", "emulator") and not target.startswith(("http://", "https://")):
            raise typer.BadParameter(f"the target is memory, emulator or a URL, not {target!r}")
        folder = out or _folder(name, target)
        if folder.exists():
            raise typer.BadParameter(f"{folder} is there already; a result is never written over")
        try:
            passed = perform(scenario, name=name, kind=target, folder=folder, quick=quick, options=options)
        except Exception as error:
            print(f"The measurement failed: {error!r}; see {folder}", file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:
            print("Interrupted; what was started is stopped, and nothing is kept.", file=sys.stderr)
            sys.exit(130)
        _show(folder)
        sys.exit(0 if passed else 1)

    parameters = [*_SHARED, *(_parameter(option) for option in options_of(scenario))]
    # Typer reads both.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what `inspect` looks for
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command(name, help=sys.modules[scenario.__module__].__doc__)(command)


def _option(name: str, kind: Any, default: Any, **facts: Any) -> inspect.Parameter:
    annotation = Annotated[kind, typer.Option(**facts)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _parameter(option: Option) -> inspect.Parameter:
    """A scenario's option on the command line; without a value it is the scenario that knows one."""
    quick = "" if option.quick == option.value else f"; quick: {option.quick}"
    facts: dict[str, Any] = {"help": f"{option.meaning} [default: {option.value}{quick}]", "show_default": False}
    if option.kind is Numbers:
        facts |= {"parser": Numbers.parse, "metavar": "N,N,…"}
    if option.kind in SMALLEST:
        facts |= {"min": SMALLEST[option.kind]}
    return _option(option.name, option.kind | None, None, **facts)


_SHARED = (
    _option("target", str, "emulator", metavar="memory|emulator|URL", help="What to load."),
    _option("out", Path | None, None, help="The result's folder; default: results/<date>-…"),
    _option("quick", bool, False, help="The short version."),
)


@app.command()
def show(folder: Annotated[Path, typer.Argument(help="A result's folder.")]) -> None:
    """Show the claims of one result."""
    _show(folder)


@app.command()
def report(
    folders: Annotated[list[Path] | None, typer.Argument(help="Results' folders; default: all that are kept.")] = None,
    out: Annotated[Path, typer.Option(help="Where the page and its pictures go.")] = Path("build/report"),
) -> None:
    """Make one Markdown page from results, with curves from their raw data."""
    chosen = folders or sorted(path.parent for path in RESULTS.glob(f"*/{SUMMARY}"))
    try:
        print(write(chosen, out))
    except (FileNotFoundError, FileExistsError) as error:
        print(_without_result(error), file=sys.stderr)
        sys.exit(2)


@app.command()
def compare(
    one: Annotated[Path, typer.Argument(help="A result's folder.")],
    other: Annotated[Path, typer.Argument(help="Another's.")],
) -> None:
    """Set two results side by side, as Markdown."""
    try:
        print(compared(one, other), end="")
    except FileNotFoundError as error:
        print(_without_result(error), file=sys.stderr)
        sys.exit(2)


@app.command()
def profile(
    what: Annotated[What, typer.Argument(help="What is looked at.")],
    runs: Annotated[int, typer.Option(min=1, help="Diamonds.")] = 500,
    out: Annotated[Path, typer.Option(file_okay=False, help="Where the raw profile goes.")] = Path("build/profile"),
) -> None:
    """Tell where the processor's time goes, per run, by part and by function; the raw profile is kept beside."""
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="fanfold-profile-") as scratch:
        profiler = profiled(what, runs, Path(scratch))
    raw = out / f"{what}.pstats"
    profiler.dump_stats(raw)
    found = told(pstats.Stats(profiler), runs)
    for title, rows in (("part", found.parts), ("function", found.functions)):
        table = Table(title, "µs a run", "share", "calls a run", box=None, pad_edge=False)
        for row in rows:
            calls = f"{row.calls:.3g}" if row.calls else ""
            table.add_row(escape(row.name), f"{row.microseconds:.1f}", f"{row.share:.1%}", calls)
        Console().print(table)
    print(f"{found.microseconds:.0f} µs a run of the processor under the profiler; {raw}")


def _without_result(error: OSError) -> str:
    return str(error) if error.filename is None else f"{Path(error.filename).parent} holds no result"


def _folder(scenario: str, target: str) -> Path:
    kind = target if target in ("memory", "emulator") else "url"
    return RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}-{scenario}-{kind}"


def _show(folder: Path) -> None:
    try:
        summary = read(folder)
    except FileNotFoundError:
        print(f"{folder} holds no result", file=sys.stderr)
        sys.exit(2)
    table = Table("", "claim", "target", "measured", box=None, pad_edge=False)
    for check in summary["checks"]:
        sign = " " if check["shown"] else "✓" if check["holds"] else "✗"
        table.add_row(sign, check["what"], check["target"], check["measured"])
    console = Console()
    console.print(table)
    if summary.get("error"):
        console.print(f"The measurement failed: {summary['error']}", markup=False)
    console.print(f"{'passed' if summary['passed'] else 'FAILED'}: {folder}")


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


for _name, _scenario in SCENARIOS.items():
    _command(_name, _scenario)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)  # as Ctrl-C: what was started has to be stopped
    app(prog_name="python -m loadtest")
