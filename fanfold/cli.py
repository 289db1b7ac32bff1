"""`fanfold`, the command line: its commands, and what each failure means as an exit status.

0 done · 1 the run failed · 2 usage, or a request the service finds wrong · 3 refused for load (429) ·
4 not reachable, or not able to.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from fanfold.commands import control, explore, output, runs, service, stack
from fanfold.local import LocalError
from fanfold.problems import NotReachable, Problem, Refused, ServiceFailure

app = typer.Typer(
    help="Durable multi-step runs on AWS without servers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    stack.up,
    stack.down,
    stack.demo,
    runs.apply,
    runs.submit,
    runs.show,
    runs.runs,
    runs.events,
    control.cancel,
    control.pause,
    control.resume,
    control.signal,
    control.redrive,
    control.fork,
    explore.explore,
    service.worker,
    service.queues,
):
    app.command()(command)
app.add_typer(service.token_app, name="token")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit status. Every failure is one sentence on stderr."""
    try:
        app(args=None if argv is None else list(argv), prog_name="fanfold")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1 if leaving.code else 0
    except LocalError as error:
        output.say(str(error))
        return error.status
    except NotReachable as error:
        output.say(f"Not reachable: {error}")
        return output.NOT_REACHABLE
    except Refused as error:
        when = error.retry_after_seconds
        output.say(f"Refused: {error}" + (f" (again in {when:g} s)" if when is not None else ""))
        return output.REFUSED
    except ServiceFailure as error:
        output.say(f"The service failed (HTTP {error.status}): {error}")
        return output.NOT_REACHABLE
    except Problem as error:
        output.say(f"{error} (HTTP {error.status})")
        return output.USAGE
    except KeyboardInterrupt:
        return output.INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
