"""The registry, the context a task gets, and the built-in tasks."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fanfold.engine.errors import Fail, NotFound, Retry
from fanfold.tasks import chaos, core, mock, registry
from fanfold.tasks.context import MAX_EMIT_BYTES, Context
from fanfold.tasks.registry import find, names, task


@pytest.fixture(autouse=True)
def _forget_what_the_test_registers() -> Iterator[None]:
    registry.load_all()
    before = dict(registry._tasks)
    yield
    registry._tasks.clear()
    registry._tasks.update(before)


def a_context(**given: Any) -> Context:
    return Context(**{"run_id": "r1", "step": "only", "tenant": "acme", "submission": "s1"} | given)


def test_built_in_tasks_are_found_without_importing_them() -> None:
    assert {"core.echo", "core.collect", "mock.model"} <= names()
    assert find("core.echo").is_async


def test_chaos_tasks_exist_only_where_chaos_is_on() -> None:
    assert not any(name.startswith("chaos.") for name in names())
    assert "chaos.crash" in names(chaos=True)
    with pytest.raises(NotFound):
        find("chaos.crash")
    assert find("chaos.crash", chaos=True).name == "chaos.crash"


def test_an_unknown_task_is_not_found() -> None:
    with pytest.raises(NotFound, match=r"no\.such"):
        find("no.such")


def test_a_registered_function_can_still_be_called_as_it_stands() -> None:
    @task("own.double")
    def double(given: Any) -> Any:
        return given * 2

    assert double(4) == 8
    assert find("own.double").function is double


def test_how_a_function_wants_to_be_called_is_read_from_it() -> None:
    @task("own.plain")
    def plain(given: Any) -> Any: ...

    @task("own.full", wants_needs=True)
    async def full(given: Any, ctx: Context) -> Any: ...

    assert (find("own.plain").is_async, find("own.plain").wants_ctx) == (False, False)
    assert (find("own.full").is_async, find("own.full").wants_ctx, find("own.full").wants_needs) == (True, True, True)


def test_two_tasks_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"core\.echo.*registered already"):

        @task("core.echo")
        def other(given: Any) -> Any: ...


@pytest.mark.parametrize("name", ["", "Own", "own.", ".own", "own..x", "own-x", "1own", "own\n"])
def test_a_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="does not match"):
        task(name)


def test_a_function_that_can_not_take_an_input_is_refused() -> None:
    with pytest.raises(TypeError, match="must take"):
        task("own.none")(lambda: None)
    with pytest.raises(TypeError, match="must take"):
        task("own.three")(lambda a, b, c: None)
    with pytest.raises(TypeError, match="generator"):

        @task("own.many")
        def many(given: Any) -> Iterator[int]:
            yield 1


def test_the_idempotency_key_is_the_same_for_every_attempt_and_no_other_step() -> None:
    first, second = a_context(attempt=1, epoch=1), a_context(attempt=2, epoch=3)
    assert first.idempotency_key == second.idempotency_key
    others = [a_context(step="next"), a_context(run_id="r2"), a_context(submission="s2")]
    assert len({first.idempotency_key, *(c.idempotency_key for c in others)}) == 4


def test_emitted_values_are_copies() -> None:
    heard: list[Any] = []
    data = {"n": [1]}
    a_context(emitter=heard.append).emit(data)
    data["n"].append(2)
    assert heard == [{"n": [1]}]


@pytest.mark.parametrize(
    "data", [math.nan, {1: 2}, object(), "x" * MAX_EMIT_BYTES], ids=["nan", "key", "object", "big"]
)
def test_what_can_not_be_journalled_is_refused_where_it_is_emitted(data: Any) -> None:
    heard: list[Any] = []
    with pytest.raises(ValueError, match=r"emitted value|JSON compliant"):
        a_context(emitter=heard.append).emit(data)
    assert heard == []


def test_remaining_time_is_never_negative() -> None:
    assert a_context(time_left=lambda: -3.0).remaining_seconds() == 0.0
    assert a_context(time_left=lambda: 3.0).remaining_seconds() == 3.0


async def test_echo_returns_its_input() -> None:
    assert await core.echo({"a": [1]}) == {"a": [1]}


async def test_collect_returns_the_outputs_of_the_needs() -> None:
    assert await core.collect(None, a_context(needs={"left": 1, "right": None})) == {"left": 1, "right": None}


async def test_the_mock_model_says_the_same_for_the_same_run_and_step() -> None:
    ctx = a_context(options={"mock_latency_ms": 0})
    first = await mock.model({"prompt": "hello"}, ctx)
    assert first == await mock.model({"prompt": "hello"}, ctx)
    assert "hello" in first["text"]
    assert first["usage"]["input_tokens"] > 0
    assert first["usage"]["output_tokens"] > 0


async def test_the_mock_models_latency_stays_within_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(mock.asyncio, "sleep", sleep)
    for number in range(50):
        await mock.model({"latency_ms": 1000}, a_context(run_id=f"r{number}"))
    assert all(0.75 <= seconds <= 1.25 for seconds in slept)
    assert len(set(slept)) == 50


@pytest.mark.parametrize("latency", ["soon", -1, True, None])
async def test_the_mock_model_refuses_a_latency_that_is_no_number(latency: Any) -> None:
    with pytest.raises(Fail, match="latency_ms"):
        await mock.model({"latency_ms": latency}, a_context())


async def test_chaos_fails_as_often_as_asked() -> None:
    with pytest.raises(Retry):
        await chaos.fail({"times": 1}, a_context(attempt=1))
    with pytest.raises(Fail):
        await chaos.fail({"times": 1, "retryable": False}, a_context(attempt=1))
    assert await chaos.fail({"times": 1}, a_context(attempt=2)) == {"times": 1}


async def test_chaos_crash_spares_its_process_after_the_last_time() -> None:
    assert await chaos.crash({"times": 1}, a_context(attempt=2)) == {"times": 1}


async def test_chaos_output_has_the_bytes_asked_for() -> None:
    assert len(json.dumps(await chaos.output({"bytes": 5000}, a_context()))) == 5000


async def test_chaos_emit_counts() -> None:
    heard: list[Any] = []
    assert await chaos.emit({"count": 3}, a_context(emitter=heard.append)) == {"count": 3}
    assert heard == [{"n": 1}, {"n": 2}, {"n": 3}]


async def test_each_effect_is_one_line_of_the_ledger(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    contexts = [a_context(run_id=f"r{n}", attempt=2, epoch=3, options={"ledger": str(ledger)}) for n in range(20)]
    await asyncio.gather(*(chaos.effect({"name": "paid"}, ctx) for ctx in contexts))
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert {line["run"] for line in lines} == {f"r{n}" for n in range(20)}
    assert {"name": "paid", "run": "r7", "step": "only", "attempt": 2, "epoch": 3} in lines


async def test_an_effect_without_a_ledger_is_an_error_not_a_silence() -> None:
    with pytest.raises(Fail, match="ledger"):
        await chaos.effect({"name": "paid"}, a_context(options={"ledger": ""}))
