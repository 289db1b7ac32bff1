"""What the service says about itself: JSON log lines, and metrics as CloudWatch embedded metrics.

The metrics' names are in `fanfold.service.telemetry.metrics`. Costs about 60 ms of cold start: Powertools, most of it
`typing_extensions` and `jmespath`. The tracer's own SDK is not loaded, nor is pydantic.
"""

from __future__ import annotations

import io
import logging
import sys
import zlib
from collections.abc import Iterator, Set
from contextlib import contextmanager
from functools import cache
from typing import TextIO

from aws_lambda_powertools.logging import Logger

from fanfold.service.settings import Settings
from fanfold.service.telemetry.emf import lines
from fanfold.service.telemetry.metric_buffer import count, measure, observe, taken
from fanfold.service.telemetry.metrics import FunctionName, Metric, Refusal
from fanfold.text.printable import shown_json, shown_lines

__all__ = [
    "FunctionName",
    "Metric",
    "Refusal",
    "about",
    "begin",
    "configure",
    "count",
    "flush",
    "in_detail",
    "logger",
    "measure",
    "observe",
    "set_level",
]


def _out() -> TextIO:
    """Standard output as it is at that moment; a task may have closed it, which closes Python's object only."""
    if sys.stdout is None or sys.stdout.closed:
        try:
            sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8", write_through=True)
        except OSError:
            return sys.stderr  # the descriptor is closed as well
    return sys.stdout


class _Output(logging.StreamHandler[TextIO]):
    """Writes to whatever standard output is at that moment, not to what it was when the logger was made."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, safe to look at in a terminal, and for any encoding to take."""
        return shown_json(super().format(record))

    @property
    def stream(self) -> TextIO:
        return _out()

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        """The base class sets it; where to write is not its choice."""


class _ForPeople(logging.StreamHandler[TextIO]):
    """Writes a line of text for each record, with what `extra` adds, to standard error."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._bare = set(vars(logging.makeLogRecord({}))) | {"message", "correlation_id", "trace"}

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback below it if there is one."""
        extra = {name: value for name, value in vars(record).items() if name not in self._bare}
        facts = "".join(f" {name}={value}" for name, value in extra.items())
        trace = getattr(record, "trace", "") or (logging.Formatter().format(record) if record.exc_info else "")
        below = f"\n{trace.rstrip()}" if trace else ""
        return shown_lines(f"{record.levelname.lower()}: {record.getMessage()}{facts}{below}")


class _Runs(logging.Filter):
    """Gives a line that names a run its id as correlation id, and lets DEBUG lines pass for a share of the runs.

    They are the same ones in every function.
    """

    def __init__(self) -> None:
        super().__init__()
        self.share = 1.0

    def filter(self, record: logging.LogRecord) -> bool:
        run_id = getattr(record, "run_id", None)
        if run_id is not None:
            record.correlation_id = run_id
        else:
            run_id = logger().thread_safe_get_current_keys().get("correlation_id")
        return record.levelno > logging.DEBUG or self.takes(run_id)

    def takes(self, run_id: object) -> bool:
        """Whether this run's DEBUG lines pass."""
        return self.share >= 1 or (run_id is not None and zlib.crc32(str(run_id).encode()) < self.share * 2**32)


_runs = _Runs()
_for_people = False
_service = Settings().service
_by_lane = Settings().lane_metrics


@cache
def logger() -> Logger:
    """The one logger: a JSON object a line on standard output; `extra` adds keys. INFO until `configure`."""
    made = Logger(service=Settings().service, level="INFO", logger_handler=_Output(), utc=True, use_rfc3339=True)
    made.addFilter(_runs)
    return made


def configure(settings: Settings) -> None:
    """Speak for this deployment, from `log_level` on; INFO lets the DEBUG lines of a share of runs pass.

    Raises ValueError for a level that is none.
    """
    global _service, _by_lane
    _service, _by_lane = settings.service, settings.lane_metrics
    logger().append_keys(service=settings.service)
    if settings.log_format == "text":
        _speak_to_people()
        set_level("WARNING" if settings.log_level.upper() == "INFO" else settings.log_level)
        return
    set_level(settings.log_level)
    if settings.log_level.upper() == "INFO" and settings.debug_sample > 0:
        set_level("DEBUG")
        _runs.share = settings.debug_sample


def set_level(level: str) -> None:
    """Log from this level on, whichever run a line is about; raises ValueError for a name that is none."""
    logger().setLevel(level.upper())
    _runs.share = 1.0


def in_detail(run_id: str) -> bool:
    """Whether a DEBUG line about this run is written: asked before one is made at each commit, for few are."""
    return logger().log_level <= logging.DEBUG and _runs.takes(run_id)


def begin(settings: Settings, function: FunctionName) -> None:
    """A function's process has begun: `configure`, and count its cold start."""
    configure(settings)
    count(Metric.COLD_STARTS, of=(function,))


def _speak_to_people() -> None:
    """From now on, log a line of text for each record on standard error, and keep metrics to ourselves."""
    global _for_people
    if not _for_people:
        _for_people = True
        handlers = logging.getLogger(logger().name).handlers
        handlers[:] = [_ForPeople()]


@contextmanager
def about(run_id: str) -> Iterator[None]:
    """What is logged within, in this asyncio task and those it starts, is about this run: its correlation id."""
    before = logger().thread_safe_get_current_keys()
    logger().thread_safe_append_keys(correlation_id=run_id)
    try:
        yield
    finally:
        # Powertools' own removal would take the key out of other tasks' contexts as well.
        logger().thread_safe_clear_keys()
        logger().thread_safe_append_keys(**before)


def flush(but: Set[Metric] = frozenset()) -> None:
    """Writes all that was counted since the last time, `but` what can wait, as embedded metrics; nothing for nothing.

    To be called at the end of each Lambda invocation, and each minute in a process.
    """
    told = list(lines(taken(but), service=_service, by_lane=_by_lane))
    if told and not _for_people:
        out = _out()
        out.write("\n".join((*told, "")))
        out.flush()  # a pipe is buffered: what is killed, or ends by `os._exit`, would take them along
