"""The bridge: puts embedded metrics from a local stack's logs into its CloudWatch, because emulators don't.

It reads the functions' log groups and the files of local worker processes (`metrics_tee.py`), each line once. `fanfold
up` starts this module as a process, and `fanfold down` stops it. Its command line names the state folder, so that a
reused pid is never mistaken for it.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanfold.local import emf, emulator, local_stack, metrics_tee
from fanfold.local.emf import MARK
from fanfold.local.local_stack import LocalError

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_logs import CloudWatchLogsClient

FILE = "bridge.json"
"""In the state folder: the positions up to which logs were read."""

PERIOD_SECONDS = 3.0
"""Seconds between two rounds."""

OVERLAP_MS = 10_000
"""A line may appear in a log this long after its time, so each round reads that much again and skips known lines."""

PAGE = 10_000
"""Lines in one answer, at most. The emulator gives no token for the next page."""

ORPHANED_SECONDS = 60.0
"""The bridge ends when the emulator has been gone for so long (a restart takes a few seconds)."""

STOP_SECONDS = 5.0


class Bridge:
    """Puts metrics from a stack's logs. It saves its position in the state folder before each put.

    So a bridge that dies in between loses one round's metrics and never counts them twice.
    """

    def __init__(
        self,
        logs: CloudWatchLogsClient,
        cloudwatch: CloudWatchClient,
        state: Path,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._logs = logs
        self._cloudwatch = cloudwatch
        self._state = state
        self._clock = clock
        path = state / FILE
        told = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self._groups: dict[str, dict[str, int]] = told.get("groups", {})
        """By log group: the lines of the last seconds that were read, each by its hash with its time."""
        self._offsets: dict[str, int] = told.get("files", {})
        self._unput: list[dict[str, Any]] = []

    def feed(self, log_groups: Sequence[str]) -> int:
        """Read new lines and put their metrics; returns the number of data. Raises boto3's errors.

        Metrics that CloudWatch refuses for good, such as a task's malformed ones, are reported and dropped.
        """
        from botocore.exceptions import ClientError, ParamValidationError

        fed = sum(self._take(self._lines(group)) for group in log_groups) + self._take(self._written())
        if self._unput:
            self._remember()
        while self._unput:
            try:
                self._cloudwatch.put_metric_data(**self._unput[0])
            except (ParamValidationError, ClientError) as error:
                if _may_be_taken_later(error):
                    raise
                print(f"metrics of namespace {self._unput[0]['Namespace']} are given up: {error}", flush=True)
            self._unput.pop(0)
        return fed

    def _take(self, lines: Iterable[str]) -> int:
        data = [datum for line in lines for datum in emf.read(line)]
        self._unput += emf.requests(data)
        return len(data)

    def _remember(self) -> None:
        draft = self._state / f"{FILE}.new"
        draft.write_text(json.dumps({"groups": self._groups, "files": self._offsets}), encoding="utf-8")
        os.replace(draft, self._state / FILE)

    def _lines(self, group: str) -> Iterator[str]:
        """The group's new lines that may be metrics."""
        seen = self._groups.get(group, {})
        start = self._stop_before(seen)
        found = dict(seen)
        try:
            for event, key in self._events(group, start):
                if key not in found:
                    found[key] = event["timestamp"]
                    yield event["message"]
        except self._logs.exceptions.ResourceNotFoundException:
            return  # a function that was never called, or is gone
        stop_before = self._stop_before(found)
        self._groups[group] = {key: at for key, at in found.items() if at >= stop_before}

    def _stop_before(self, seen: Mapping[str, int]) -> int:
        """The time from which on new lines may appear. A line with a future time does not advance it."""
        newest = min(max(seen.values(), default=0), int(self._clock() * 1_000))
        return max(0, newest - OVERLAP_MS)

    def _events(self, group: str, start_ms: int) -> Iterator[tuple[Mapping[str, Any], str]]:
        """Events from a time on, oldest first, each with a unique key."""
        twins: Counter[str] = Counter()
        more: dict[str, Any] = {"startTime": start_ms}
        while True:
            page = self._logs.filter_log_events(logGroupName=group, filterPattern=f'"{MARK}"', limit=PAGE, **more)
            events = page["events"]
            for event in events:
                # The emulator's events have no id, and one batch of a function may print the same line twice.
                facts = f"{event.get('logStreamName')} {event['timestamp']} {event['message']}"
                digest = hashlib.sha256(facts.encode()).hexdigest()[:24]
                twins[digest] += 1
                yield event, event.get("eventId") or f"{digest}.{twins[digest]}"
            if token := page.get("nextToken"):
                more = {"startTime": start_ms, "nextToken": token}
            elif len(events) == PAGE and events[-1]["timestamp"] > more["startTime"]:
                more = {"startTime": events[-1]["timestamp"]}
                twins.clear()
            else:
                return

    def _written(self) -> Iterator[str]:
        """The new whole lines of the worker processes' files."""
        for path in sorted((self._state / metrics_tee.FOLDER).glob("*.jsonl")):
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offsets.get(path.name, 0):
                    self._offsets[path.name] = 0  # the file was truncated
                file.seek(self._offsets.get(path.name, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # an incomplete line
                    self._offsets[path.name] = self._offsets.get(path.name, 0) + len(line)
                    yield line.decode("utf-8", errors="replace")


def _may_be_taken_later(error: Exception) -> bool:
    """Whether the same request may succeed later: after throttling, or when a service is starting."""
    response = getattr(error, "response", None)
    if response is None:
        return False  # botocore itself would not send it
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    return status >= 500 or status == 429 or "Throttl" in str(response.get("Error", {}).get("Code", ""))


def forget(state: Path) -> None:
    """Forget all positions: they belong to the logs of an emulator that is gone."""
    (state / FILE).unlink(missing_ok=True)
    shutil.rmtree(state / metrics_tee.FOLDER, ignore_errors=True)


def start(state: Path, environ: Mapping[str, str]) -> int:
    """Start the bridge of the stack in `local.json`, detached; returns its pid. It logs to `bridge.log`."""
    own = {name: value for name, value in environ.items() if not name.startswith(("FANFOLD_", "AWS_"))}
    with (state / "bridge.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "fanfold.local.emf_forwarder", "--state", str(state)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=own,
            cwd=state,
            start_new_session=True,
        )
    process.returncode = 0  # it outlives this process, and Popen would warn about that
    return process.pid


def is_ours(pid: int, state: Path) -> bool:
    """Whether that process is the bridge of this state folder, by its command line."""
    return f"fanfold.local.emf_forwarder --state {state}" in emulator.command_line(pid)


def stop(pid: int, state: Path) -> bool:
    """Stop the bridge. Returns whether it was running."""
    if not is_ours(pid, state):
        return False
    deadline = time.monotonic() + STOP_SECONDS
    number = signal.SIGTERM
    while is_ours(pid, state):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # the parent must reap it
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        time.sleep(0.05)
    return True


def _be_the_bridge(state: Path) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    from fanfold.local.aws_access import session_of

    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ending.set())
    stack = local_stack.read(state)
    if stack is None:
        raise LocalError(f"There is no stack in {state}.")
    session = session_of(stack.environment({}))
    logs = session.client("logs", endpoint_url=stack.endpoint)
    cloudwatch = session.client("cloudwatch", endpoint_url=stack.endpoint)
    bridge = Bridge(logs, cloudwatch, state)
    last_answer = time.monotonic()
    # The stack is down, or another process is the bridge now.
    while stack is not None and stack.bridge_pid in (None, os.getpid()):
        try:
            bridge.feed(list(stack.log_groups.values()))
            last_answer = time.monotonic()
        except (BotoCoreError, ClientError) as error:
            print(f"not this time: {error}", flush=True)
        if time.monotonic() > last_answer + ORPHANED_SECONDS or ending.wait(PERIOD_SECONDS):
            return
        stack = local_stack.read(state)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Feeds a local stack's metrics into its CloudWatch.")
    parser.add_argument("--state", required=True, type=Path)
    _be_the_bridge(parser.parse_args().state)
