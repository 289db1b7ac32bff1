"""`dashboard`: the deployed dashboard in the terminal or as a picture, from its own page and CloudWatch's data."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fanfold.commands import output
from fanfold.commands.output import JsonFlag
from fanfold.local.local_stack import LocalError

if TYPE_CHECKING:
    from fanfold.dashboard.data import Filled, Span
    from fanfold.dashboard.deployed import Alarm, Deployment

WATCH_SECONDS = 10.0
"""How often a watched page is fetched again."""

LONGEST_HOURS = 455 * 24
"""CloudWatch keeps metrics for 15 months."""


def dashboard(
    stack: Annotated[
        str | None, typer.Option(metavar="NAME|local", help="The deployed stack; default: the local one.")
    ] = None,
    hours: Annotated[
        float | None, typer.Option(min=0.05, max=LONGEST_HOURS, help="How far back; default: as the dashboard says.")
    ] = None,
    period: Annotated[
        int | None, typer.Option(min=1, max=86_400, metavar="SECONDS", help="A period other than the dashboard's own.")
    ] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it as a picture into this file.")] = None,
    watch: Annotated[bool, typer.Option("--watch", metavar="", help="Fetch it again each ten seconds.")] = False,
    json_: JsonFlag = False,
) -> None:
    """Show a deployment's dashboard in the terminal, or draw it as a picture."""
    if watch and json_:
        raise typer.BadParameter("--watch is for people and --json for programs: not both")
    try:
        from fanfold.dashboard import deployed
    except ImportError as error:
        raise LocalError(
            f"The dashboard needs what the service needs: fanfold[service] ({error}).", status=2
        ) from error
    _check(hours, period)
    deployment = deployed.find(stack, output.aws_stack(stack), os.environ)
    look = _Look(deployment, hours=hours, period_seconds=period, png=png)
    if json_:
        output.emit(look.as_json())
    elif watch:
        _watch(look)
    else:
        output.console().print(look.shown())
    if png is not None and not watch:
        output.say(f"Drawn into {png}.")


def _check(hours: float | None, period: int | None) -> None:
    from fanfold.dashboard.data import SLOTS

    if hours is not None and period is not None and hours * 3_600 / period > SLOTS:
        raise typer.BadParameter(
            f"{hours:g} hours have more than {SLOTS} periods of {period} s: take a longer --period"
        )


class _Look:
    """A deployment's dashboard, fetched anew with each look."""

    def __init__(
        self, deployment: Deployment, *, hours: float | None, period_seconds: int | None, png: Path | None
    ) -> None:
        from fanfold.dashboard.page import with_period

        self._deployment = deployment
        self._page = deployment.page if period_seconds is None else with_period(deployment.page, period_seconds)
        self._hours = hours
        self._png = png

    def _taken(self) -> tuple[Sequence[Filled], Sequence[Alarm], Span]:
        from fanfold.dashboard import data, picture
        from fanfold.dashboard.deployed import explained

        when = data.span(self._page, now=datetime.now(UTC), hours=self._hours)
        with explained(self._deployment.stack_name):
            widgets = [data.filled(self._deployment.cloudwatch, widget, when) for widget in self._page.widgets]
            alarms = self._deployment.alarms()
        if self._png is not None:
            picture.draw(self._png, self._deployment.stack_name, widgets, alarms, when)
        return widgets, alarms, when

    def shown(self) -> Any:
        """For the terminal."""
        from fanfold.dashboard import terminal

        return terminal.shown(self._deployment.stack_name, *self._taken())

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        widgets, alarms, when = self._taken()
        return {
            "stack": self._deployment.stack_name,
            "dashboard": self._deployment.dashboard_name,
            "begin": when.begin.isoformat(timespec="seconds"),
            "end": when.end.isoformat(timespec="seconds"),
            "alarms": [{"name": alarm.name, "state": alarm.state} for alarm in alarms],
            "widgets": [_widget_as_json(filled) for filled in widgets],
        }


def _widget_as_json(filled: Filled) -> dict[str, Any]:
    curves = [
        {"label": curve.label, "period_seconds": curve.line.period_seconds, "values": list(curve.series)}
        for curve in filled.curves
    ]
    return {
        "kind": filled.widget.kind,
        "title": filled.widget.title,
        "curves": curves,
        "problems": list(filled.problems),
    }


def _watch(look: _Look) -> None:
    from rich.live import Live

    with Live(look.shown(), console=output.console(), auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            time.sleep(WATCH_SECONDS)
            live.update(look.shown(), refresh=True)
