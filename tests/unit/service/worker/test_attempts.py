"""One execution of a task: whatever it does, an outcome comes back and the worker lives."""

from __future__ import annotations

import asyncio
import functools
import json
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fanfold.engine.errors import Fail, Retry
from fanfold.service.clock import SystemClock
from fanfold.service.settings import Settings
from fanfold.service.telemetry.reporting import about, logger
from fanfold.service.worker.task_runner import Failed, Job, Outcome, Succeeded, TaskRunner
from fanfold.tasks import registry
from fanfold.tasks.context import Context
from fanfold.tasks.registry import task


@pytest.fixture(autouse=True)
def _forget_what_the_test_registers() -> Iterator[None]:
    registry.load_all()
    before = dict(registry._tasks)
    yield
    registry._tasks.clear()
    registry._tasks.update(before)


@pytest.fixture
def attempts() -> TaskRunner:
    return TaskRunner(Settings(chaos=True, max_output_bytes=10_000), SystemClock(), grace_seconds=0.1)


def a_job(name: str = "own.task", **given: Any) -> Job:
    values = {
        "tenant": "acme",
        "run_id": "r1",
        "submission": "s1",
        "step": "only",
        "attempt": 1,
        "epoch": 1,
        "task": name,
        "input": None,
        "timeout_seconds": 5.0,
    }
    return Job(**values | given)


def ignored(data: Any) -> None:
    """Nobody listens."""


async def outcome_of(attempts: TaskRunner, function: Callable[..., Any], **given: Any) -> Outcome:
    registry._tasks.pop("own.task", None)
    task("own.task")(function)
    return await attempts.run(a_job(**given), emit=ignored)


def both(result: Callable[[], Any]) -> list[Callable[..., Any]]:
    """The same behaviour as an async task and as a plain function."""

    async def on_loop(given: Any) -> Any:
        return result()

    def in_thread(given: Any) -> Any:
        return result()

    return [on_loop, in_thread]


def raiser(error: BaseException) -> Callable[[], Any]:
    def result() -> Any:
        raise error

    return result


async def test_the_output_is_what_its_json_says(attempts: TaskRunner) -> None:
    for function in both(lambda: {"pair": (1, 2.5), "text": "ü"}):
        outcome = await outcome_of(attempts, function)
        assert outcome == Succeeded(
            output={"pair": [1, 2.5], "text": "ü"}, encoded=b'{"pair":[1,2.5],"text":"\\u00fc"}'
        )


async def test_a_task_gets_its_input_needs_and_context(attempts: TaskRunner) -> None:
    @task("own.look", wants_needs=True)
    def look(given: Any, ctx: Context) -> Any:
        return [given, dict(ctx.needs), ctx.run_id, ctx.attempt, ctx.epoch, 0 < ctx.remaining_seconds() <= 5]

    job = a_job("own.look", input={"a": 1}, needs={"left": 7}, attempt=2, epoch=3)
    outcome = await attempts.run(job, emit=ignored)
    assert isinstance(outcome, Succeeded)
    assert outcome.output == [{"a": 1}, {"left": 7}, "r1", 2, 3, True]


async def test_what_a_task_logs_has_its_runs_id_in_a_thread_too(
    attempts: TaskRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    def say() -> None:
        logger().info("from a task")

    with about("r1"):
        for function in both(say):
            await outcome_of(attempts, function)
    told = [json.loads(line)["correlation_id"] for line in capsys.readouterr().out.splitlines()]
    assert told == ["r1", "r1"]


async def test_a_task_that_changes_its_input_changes_only_its_copy(attempts: TaskRunner) -> None:
    given = {"list": [1]}
    await outcome_of(attempts, lambda value: value["list"].append(2), input=given)
    assert given == {"list": [1]}


async def test_what_a_task_raises_is_recorded_by_class_and_message(attempts: TaskRunner) -> None:
    for function in both(raiser(LookupError("no such file " + "x" * 5000))):
        outcome = await outcome_of(attempts, function)
        assert isinstance(outcome, Failed)
        assert outcome.failure.type == "LookupError"
        assert outcome.failure.message.startswith("no such file")
        assert len(outcome.failure.message) == 1000
        assert outcome.retryable


async def test_a_task_says_whether_and_when_it_is_tried_again(attempts: TaskRunner) -> None:
    for function in both(raiser(Retry("busy", after=12))):
        outcome = await outcome_of(attempts, function)
        assert isinstance(outcome, Failed)
        assert (outcome.retryable, outcome.after, outcome.failure.message) == (True, 12.0, "busy")
    for function in both(raiser(Fail("never"))):
        outcome = await outcome_of(attempts, function)
        assert isinstance(outcome, Failed)
        assert (outcome.retryable, outcome.after) == (False, None)


@pytest.mark.parametrize("after", [math.nan, math.inf, -1, "soon"])
async def test_a_delay_that_is_none_leaves_it_to_the_backoff(attempts: TaskRunner, after: Any) -> None:
    outcome = await outcome_of(attempts, both(raiser(Retry("busy", after=after)))[0])
    assert isinstance(outcome, Failed)
    assert (outcome.retryable, outcome.after) == (True, None)


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), StopIteration(1)]
)
async def test_no_exception_of_a_task_ends_its_worker(attempts: TaskRunner, error: BaseException) -> None:
    for function in both(raiser(error)):
        outcome = await outcome_of(attempts, function)
        assert isinstance(outcome, Failed)
        assert outcome.retryable
        assert isinstance(await outcome_of(attempts, lambda given: 1), Succeeded)


@pytest.mark.parametrize("broken", [RuntimeError("not today"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
async def test_an_exception_that_can_not_be_shown_is_still_a_failure(
    attempts: TaskRunner, broken: BaseException
) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise broken

        __repr__ = __str__

    for function in both(raiser(Odd())):
        outcome = await outcome_of(attempts, function)
        assert isinstance(outcome, Failed)
        assert (outcome.failure.type, outcome.retryable) == ("Odd", True)
        assert type(broken).__name__ in outcome.failure.message


async def test_an_exception_whose_every_part_is_broken_is_still_a_failure(attempts: TaskRunner) -> None:
    class Text(str):
        def __getitem__(self, key: Any) -> str:
            raise KeyboardInterrupt

        __bool__ = __len__ = __iter__ = __getitem__  # type: ignore[assignment]

    class Odd(Exception):
        def __str__(self) -> str:
            return Text("odd")

    class OddGroup(ExceptionGroup[Exception]):
        @property
        def exceptions(self) -> Any:
            raise SystemExit

    class OddRetry(Retry):
        after = property(lambda self: exec("raise KeyboardInterrupt"), lambda self, value: None)

    for error in (Odd(), OddGroup("odd", [ValueError()]), OddRetry()):
        for function in both(raiser(error)):
            outcome = await outcome_of(attempts, function)
            assert isinstance(outcome, Failed)
            assert outcome.retryable
    assert isinstance(await outcome_of(attempts, lambda given: 1), Succeeded)


async def test_a_failures_type_and_message_are_cut_to_what_is_documented(attempts: TaskRunner) -> None:
    long = type("X" * 300_000, (Exception,), {})("y" * 300_000)
    for function in both(raiser(long)):
        outcome = await outcome_of(attempts, function)
        assert isinstance(outcome, Failed)
        assert (len(outcome.failure.type), len(outcome.failure.message)) == (200, 1_000)


async def test_what_a_task_says_in_a_group_of_exceptions_is_heard(attempts: TaskRunner) -> None:
    def grouped(*errors: Exception) -> ExceptionGroup[Exception]:
        return ExceptionGroup("several", [ValueError("one"), ExceptionGroup("deeper", [*errors, KeyError("two")])])

    for function in both(raiser(grouped(Retry("busy", after=3), Fail("never")))):
        outcome = await outcome_of(attempts, function)
        assert isinstance(outcome, Failed)
        assert (outcome.failure.type, outcome.failure.message, outcome.retryable) == ("Fail", "never", False)
    for function in both(raiser(grouped(Retry("busy", after=3), Retry("busier", after=9), Retry("soon")))):
        outcome = await outcome_of(attempts, function)
        assert isinstance(outcome, Failed)
        assert (outcome.failure.message, outcome.retryable, outcome.after) == ("busier", True, 9.0)
    for function in both(raiser(grouped())):
        outcome = await outcome_of(attempts, function)
        assert isinstance(outcome, Failed)
        assert (outcome.failure.type, outcome.retryable, outcome.after) == ("ExceptionGroup", True, None)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "make",
    [lambda: math.nan, object, lambda: {1: 2}, lambda: {1, 2}, lambda: nested(100_000), lambda: nested(500), circle],
    ids=["nan", "object", "key", "set", "very deep", "deep", "circle"],
)
async def test_what_is_no_json_fails_the_step_for_good(attempts: TaskRunner, make: Callable[[], Any]) -> None:
    for function in both(make):
        outcome = await outcome_of(attempts, function)
        assert isinstance(outcome, Failed)
        assert (outcome.failure.type, outcome.retryable) == ("invalid_output", False)


async def test_an_output_over_the_limit_names_the_limit(attempts: TaskRunner) -> None:
    assert isinstance(await attempts.run(a_job("chaos.output", input={"bytes": 10_000}), emit=ignored), Succeeded)
    outcome = await attempts.run(a_job("chaos.output", input={"bytes": 10_001}), emit=ignored)
    assert isinstance(outcome, Failed)
    assert (outcome.failure.type, outcome.retryable) == ("output_too_large", False)
    assert "10000" in outcome.failure.message


async def test_an_unknown_task_fails_for_good(attempts: TaskRunner) -> None:
    outcome = await attempts.run(a_job("no.such"), emit=ignored)
    assert isinstance(outcome, Failed)
    assert (outcome.failure.type, outcome.retryable) == ("unknown_task", False)


async def test_chaos_tasks_are_unknown_where_chaos_is_off() -> None:
    outcome = await TaskRunner(Settings(), SystemClock()).run(a_job("chaos.crash"), emit=ignored)
    assert isinstance(outcome, Failed)
    assert outcome.failure.type == "unknown_task"


async def test_an_async_task_is_cancelled_at_its_timeout_and_may_clean_up(attempts: TaskRunner) -> None:
    cleaned: list[bool] = []

    async def slow(given: Any, ctx: Context) -> Any:
        try:
            await asyncio.sleep(10)
        finally:
            cleaned.append(ctx.cancelled)

    outcome = await outcome_of(attempts, slow, timeout_seconds=0.02)
    assert isinstance(outcome, Failed)
    assert (outcome.failure.type, outcome.retryable) == ("timed_out", True)
    assert cleaned == [True]
    assert not attempts.lingering


async def test_a_task_that_raises_a_timeout_of_its_own_is_not_the_steps_timeout(attempts: TaskRunner) -> None:
    outcome = await outcome_of(attempts, both(raiser(TimeoutError("the database")))[0])
    assert isinstance(outcome, Failed)
    assert outcome.failure.type == "TimeoutError"


async def test_a_thread_that_outlives_its_timeout_spends_the_process(attempts: TaskRunner) -> None:
    release = threading.Event()
    outcome = await outcome_of(attempts, lambda given: release.wait(10), timeout_seconds=0.02)
    assert isinstance(outcome, Failed)
    assert outcome.failure.type == "timed_out"
    assert attempts.lingering == 1
    assert attempts.spent, "it had a moment to notice"
    assert isinstance(await outcome_of(attempts, lambda given: 1), Succeeded), "what runs here may still finish"
    release.set()
    await asyncio.sleep(0.05)
    assert attempts.spent, "for good"
    assert attempts.lingering == 0


async def test_a_thread_that_stops_when_told_to_costs_nothing(attempts: TaskRunner) -> None:
    def polite(given: Any, ctx: Context) -> Any:
        while not ctx.cancelled:
            time.sleep(0.005)

    outcome = await outcome_of(attempts, polite, timeout_seconds=0.02)
    assert isinstance(outcome, Failed)
    await asyncio.sleep(0.15)
    assert not attempts.spent
    assert not attempts.lingering


async def test_an_async_task_that_refuses_to_stop_spends_the_process(attempts: TaskRunner) -> None:
    job = a_job("chaos.sleep", input={"ms": 400, "ignore_cancel": True}, timeout_seconds=0.02)
    began = time.monotonic()
    outcome = await attempts.run(job, emit=ignored)
    assert isinstance(outcome, Failed)
    assert outcome.failure.type == "timed_out"
    assert time.monotonic() - began < 0.35
    assert attempts.spent
    await asyncio.sleep(0.4)
    assert not attempts.lingering


@pytest.mark.parametrize("task", ["chaos.sleep", "chaos.block"])
async def test_cancelling_an_attempt_cancels_its_task(attempts: TaskRunner, task: str) -> None:
    job = a_job(task, input={"ms": 10_000})
    running = asyncio.create_task(attempts.run(job, emit=ignored))
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0.05)
    assert not attempts.lingering
    assert not attempts.spent


async def test_cancelling_an_attempt_that_has_not_begun_leaves_nothing(attempts: TaskRunner) -> None:
    for function in both(lambda: 1):
        registry._tasks.pop("own.task", None)
        task("own.task")(function)
        running = asyncio.create_task(attempts.run(a_job(), emit=ignored))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_coroutine_from_a_plain_function_is_awaited(attempts: TaskRunner) -> None:
    def quietly(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(given: Any) -> Any:
            return function(given)

        return inner

    @quietly
    async def wrapped(given: Any) -> Any:
        await asyncio.sleep(0)
        return threading.current_thread() is threading.main_thread()

    outcome = await outcome_of(attempts, wrapped)
    assert isinstance(outcome, Succeeded)
    assert outcome.output is True


async def test_progress_from_loop_and_threads_arrives_in_order_before_the_outcome(attempts: TaskRunner) -> None:
    async def on_loop(given: Any, ctx: Context) -> Any:
        for n in range(100):
            ctx.emit(n)

    def in_thread(given: Any, ctx: Context) -> Any:
        for n in range(100):
            ctx.emit(n)

    for function in (on_loop, in_thread):
        heard: list[Any] = []
        registry._tasks.pop("own.task", None)
        task("own.task")(function)
        await attempts.run(a_job(), emit=heard.append)
        assert heard == list(range(100))


async def test_progress_after_the_end_is_nobodys(attempts: TaskRunner) -> None:
    heard: list[Any] = []
    kept: list[Context] = []

    @task("own.task")
    def keep(given: Any, ctx: Context) -> None:
        kept.append(ctx)
        ctx.emit("in time")

    assert isinstance(await attempts.run(a_job(), emit=heard.append), Succeeded)
    kept[0].emit("late")
    await asyncio.to_thread(kept[0].emit, "later")
    await asyncio.sleep(0)
    assert heard == ["in time"]


async def test_plain_functions_run_at_once_up_to_the_bound() -> None:
    attempts = TaskRunner(Settings(concurrency=2), SystemClock())
    most, now, lock = 0, 0, threading.Lock()

    @task("own.task")
    def counted(given: Any) -> Any:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1

    outcomes = await asyncio.gather(*(attempts.run(a_job(), emit=ignored) for _ in range(6)))
    assert all(isinstance(outcome, Succeeded) for outcome in outcomes)
    assert most == 2


def test_attempts_serve_one_loop_after_another() -> None:
    attempts = TaskRunner(Settings(concurrency=1, chaos=True), SystemClock())

    async def two() -> list[Outcome]:
        job = a_job("chaos.block", input={"ms": 1})
        return list(await asyncio.gather(attempts.run(job, emit=ignored), attempts.run(job, emit=ignored)))

    for _ in range(2):
        assert all(isinstance(outcome, Succeeded) for outcome in asyncio.run(two()))


def test_a_thread_given_up_may_end_after_its_loop() -> None:
    attempts = TaskRunner(Settings(chaos=True), SystemClock(), grace_seconds=0.01)
    job = a_job("chaos.block", input={"ms": 60, "ignore_cancel": True}, timeout_seconds=0.01)
    assert isinstance(asyncio.run(attempts.run(job, emit=ignored)), Failed)
    assert attempts.lingering == 1
    time.sleep(0.1)
    assert attempts.lingering == 0


def in_a_process(task_name: str, given: Any) -> subprocess.CompletedProcess[str]:
    """One attempt, of 0.1 s at most, in a process that has nothing else to do."""
    script = f"""
import asyncio
from fanfold.service.worker.task_runner import TaskRunner, Job
from fanfold.service.clock import SystemClock
from fanfold.service.settings import Settings
job = Job(tenant="acme", run_id="r1", submission="s1", step="only", attempt=1, epoch=1,
          task={task_name!r}, input={given!r}, timeout_seconds=0.1)
print(asyncio.run(TaskRunner(Settings(chaos=True), SystemClock()).run(job, emit=print)).failure.type)
"""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)


def test_a_thread_that_never_ends_does_not_keep_its_process_alive() -> None:
    result = in_a_process("chaos.block", {"ms": 3_600_000, "ignore_cancel": True})
    assert (result.returncode, result.stdout, result.stderr) == (0, "timed_out\n", "")


def test_chaos_crash_kills_its_process() -> None:
    assert in_a_process("chaos.crash", {}).returncode == -signal.SIGKILL
