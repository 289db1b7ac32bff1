"""The crash explorer: what is well made ends right wherever its worker dies, what is not is found and named."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fanfold.commands.command_line import main
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.record.run import Failure, Run, Status, StepStatus
from fanfold.engine.rules import interruption
from fanfold.engine.rules.draft import Draft
from fanfold.explore import Effect, Exploration, WrongEnds, explore
from fanfold.service.settings import ClassSettings, Settings
from fanfold.tasks import registry
from fanfold.tasks.context import Context
from fanfold.tasks.effects import RECORDER, effect
from fanfold.tasks.registry import task
from fanfold.testing.virtual_time import Stalled

EXAMPLES = Path(__file__).parents[3] / "examples"

memory: dict[str, Any] = {}
"""What the tasks below keep in their module: a process's own, gone when it dies."""


@pytest.fixture(autouse=True)
def own_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that a test registers are gone after it."""
    registry.load_all()
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))


def one_step(name: str, **given: Any) -> dict[str, Any]:
    """A workflow of one step that calls this task, and one after it."""
    return {"name": "flow", "steps": {"one": {"task": name, **given}, "two": {"task": "core.echo", "needs": ["one"]}}}


def said(found: Exploration) -> set[str]:
    """Everything that was found wrong."""
    return {str(wrong) for point in found.wrong for wrong in point.wrong}


# --- what is well made ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny", "diamond", "review"])
def test_the_examples_end_right_wherever_their_worker_dies(name: str) -> None:
    found = explore(EXAMPLES / f"{name}.yaml")
    found.must_be_right()
    assert len(found.points) >= 2 * len(found.calls) - 2
    assert found.notes == ()


def test_the_diamond_ends_right_wherever_two_workers_die() -> None:
    found = explore(EXAMPLES / "diamond.yaml", pairs=True)
    found.must_be_right()
    assert sum(len(point.where) == 2 for point in found.points) > 400


def test_every_call_is_a_place_to_die_before_and_after_it() -> None:
    found = explore(EXAMPLES / "tiny.yaml")
    slots = {point.where[0] for point in found.points}
    for number, call in enumerate(found.calls, 1):
        # What a receive brings is known only to one that lived to see it.
        assert f"before worker 1's call {number}, {call.replace(': envelope', '')}" in slots
    committed = "runs.put (step.succeeded hello, run.succeeded)"
    assert any(slot.startswith("after") and committed in slot for slot in slots)


def test_retries_suspensions_and_timers_end_right() -> None:
    steps = {
        "flaky": {"task": "chaos.fail", "input": {"times": 2}, "retry": {"backoff": "10s", "jitter": "none"}},
        "pause": {"wait": {"for": "2m"}, "needs": ["flaky"]},
        "last": {"task": "core.echo", "needs": ["pause"]},
    }
    found = explore({"name": "flow", "steps": steps})
    found.must_be_right()
    assert any("run.suspended" in call for call in found.calls)


def test_a_wait_for_a_signal_gets_it_and_ends_right() -> None:
    steps = {
        "gate": {"wait": {"signal": "approve", "timeout": "24h"}},
        "after": {"task": "core.echo", "needs": ["gate"], "input": "${steps.gate.output}"},
    }
    document = {"name": "flow", "steps": steps, "output": "${steps.after.output}"}
    seen = []
    found = explore(document, signals={"approve": {"by": "ada"}}, check=lambda run, effects: seen.append(run.output))
    found.must_be_right()
    assert seen == [{"by": "ada"}] * len(seen)
    assert len(seen) > 20


@pytest.mark.parametrize("items", [3, 51])
def test_maps_in_the_worker_and_elsewhere_end_right(items: int) -> None:
    steps = {"all": {"map": {"over": "${input}", "task": "core.echo", "input": "${item}"}}}
    found = explore({"name": "flow", "steps": steps, "output": "${steps.all.output}"}, list(range(items)))
    found.must_be_right()
    assert any("fan_out.start" in call for call in found.calls) == (items > 50)


def test_outputs_too_big_for_the_record_end_right() -> None:
    found = explore(one_step("chaos.output", input={"bytes": 20_000}))
    found.must_be_right()
    assert "blobs.put" in found.calls


def test_a_record_that_is_sealed_in_parts_ends_right() -> None:
    @task("test.noise")
    async def noise(given: Any, ctx: Context) -> Any:
        return hashlib.sha512(ctx.step.encode()).hexdigest()

    names = [f"s{n}" for n in range(20)]
    steps = {name: {"task": "test.noise", "needs": names[:n][-1:]} for n, name in enumerate(names)}
    found = explore({"name": "flow", "steps": steps, "output": "${steps.s19.output}"})
    found.must_be_right()
    assert any("runs.put_segment" in call for call in found.calls)


def test_the_death_of_a_maps_function_cuts_off_no_step_of_the_worker() -> None:
    steps = {
        "many": {"map": {"over": "${input}", "task": "core.echo", "via": "stepfunctions"}},
        "once": {"task": "chaos.sleep", "input": {"ms": 500}, "retry": {"on_interrupt": "fail"}},
    }
    found = explore({"name": "flow", "steps": steps}, [1, 2])
    found.must_be_right()
    assert any("fanout" in point.where[0] for point in found.points)


def test_at_most_once_fails_exactly_where_the_step_was_cut_off() -> None:
    ends: list[tuple[Status, int]] = []

    @task("test.once")
    async def once(given: Any) -> Any:
        effect("fired")

    found = explore(
        one_step("test.once", retry={"on_interrupt": "fail"}),
        check=lambda run, effects: ends.append((run.status, len(effects))),
    )
    found.must_be_right()
    assert {status for status, _ in ends} == {Status.SUCCEEDED, Status.FAILED}
    assert max(fired for _, fired in ends) == 1
    # Cut off between its start and its end only: after the commit that starts it, up to the commit that ends it.
    failed = [point.where[0] for point, (status, _) in zip(found.points, ends[1:], strict=True) if status == "failed"]
    assert failed[0].startswith("after")
    assert "step.started one" in failed[0]
    assert failed[-1].startswith("before")
    assert "step.succeeded one" in failed[-1]


def test_plain_functions_and_what_they_give_to_threads_are_done_on_the_loop() -> None:
    @task("test.plain")
    def plain(given: Any) -> Any:
        effect("plain", key="k")
        return 1

    @task("test.threaded")
    async def threaded(given: Any) -> Any:
        return await asyncio.to_thread(lambda: 2)

    steps = {"one": {"task": "test.plain"}, "two": {"task": "test.threaded", "needs": ["one"]}}
    document = {"name": "flow", "steps": steps, "output": ["${steps.one.output}", "${steps.two.output}"]}
    outputs = []
    explore(document, check=lambda run, effects: outputs.append(run.output)).must_be_right()
    assert outputs == [[1, 2]] * len(outputs)


# --- what is not ------------------------------------------------------------------------------


def test_an_effect_without_an_idempotency_key_is_found_with_its_call_and_step() -> None:
    @task("test.charge")
    async def charge(given: Any) -> Any:
        effect("charge")

    found = explore(one_step("test.charge"))
    assert said(found) == {"step one: effect 'charge' happened 2 times without an idempotency key, undisturbed once"}
    slots = [point.where[0] for point in found.wrong]
    assert any(slot.startswith("after") and "effect charge" in slot for slot in slots)
    assert any(slot.startswith("before") and "step.succeeded one" in slot for slot in slots)
    with pytest.raises(WrongEnds, match=r"(?s)before worker 1's call .*runs\.put.*step one: effect 'charge'"):
        found.must_be_right()


def test_the_same_effect_under_the_steps_key_is_right() -> None:
    @task("test.charge")
    async def charge(given: Any, ctx: Context) -> Any:
        effect("charge", key=ctx.idempotency_key)

    explore(one_step("test.charge")).must_be_right()


def test_a_key_that_differs_from_attempt_to_attempt_is_found() -> None:
    @task("test.charge")
    async def charge(given: Any, ctx: Context) -> Any:
        effect("charge", key=f"{ctx.idempotency_key}/{ctx.attempt}")

    assert said(explore(one_step("test.charge"))) == {
        "step one: effect 'charge' happened under 2 different keys, undisturbed under 1"
    }


def test_a_task_that_relies_on_what_an_earlier_one_left_in_memory_is_found() -> None:
    @task("test.put")
    async def put(given: Any) -> Any:
        memory["it"] = 7

    @task("test.get")
    async def get(given: Any) -> Any:
        return memory["it"]

    steps = {"put": {"task": "test.put"}, "get": {"task": "test.get", "needs": ["put"]}}
    found = explore({"name": "flow", "steps": steps})
    assert any("step get: is failed" in text for text in said(found))
    assert memory == {}


def test_a_guard_in_memory_that_hides_a_repetition_does_not_hide_it_here() -> None:
    @task("test.charge")
    async def charge(given: Any) -> Any:
        if "done" not in memory:
            memory["done"] = True
            effect("charge")

    assert any("'charge' happened 2 times" in text for text in said(explore(one_step("test.charge"))))


def test_a_death_between_two_effects_is_one_of_the_places() -> None:
    @task("test.move")
    def move(given: Any, ctx: Context) -> Any:
        effect("debit", key=f"{ctx.idempotency_key}/debit")
        effect("credit")

    found = explore(one_step("test.move"))
    assert said(found) == {"step one: effect 'credit' happened 2 times without an idempotency key, undisturbed once"}
    assert any("after worker 1's call" in point.where[0] and "effect debit" in point.where[0] for point in found.points)


def test_an_output_that_depends_on_the_attempt_is_found() -> None:
    @task("test.count")
    async def count(given: Any, ctx: Context) -> Any:
        return ctx.attempt

    assert "step one: gave 2, undisturbed 1" in said(explore(one_step("test.count")))


def test_outputs_that_always_differ_are_not_compared_and_that_is_said() -> None:
    @task("test.clock")
    async def clock(given: Any) -> Any:
        return time.perf_counter_ns()

    found = explore(one_step("test.clock"))
    found.must_be_right()
    assert found.notes == ("The outputs differ from one undisturbed run to the next: they were not compared.",)


def test_a_timeout_that_leaves_no_room_for_a_lease_is_found() -> None:
    document = {**one_step("core.echo", timeout="5s"), "timeout": "30s"}
    assert any("its timeout of 30 s leaves no room for a lease" in text for text in said(explore(document)))


def test_an_authors_own_check_is_asked_of_each_end() -> None:
    def check(run: Run, effects: Sequence[Effect]) -> None:
        assert run.epoch == 1, "claimed twice"

    found = explore(EXAMPLES / "tiny.yaml", check=check)
    assert said(found) == {"the check says: claimed twice"}
    assert 0 < len(found.wrong) < len(found.points)


def test_a_task_that_would_kill_the_explorer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"chaos\.crash would kill the explorer"):
        explore(one_step("chaos.crash"))


def test_a_task_that_spins_is_told_of_instead_of_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fanfold.explore.simulation.MOST_TURNS", 2_000)

    @task("test.spin")
    async def spin(given: Any) -> Any:
        while True:  # noqa: ASYNC110 - the fault it is about
            await asyncio.sleep(0)

    with pytest.raises(Stalled, match="without letting time pass"):
        explore(one_step("test.spin"))


def a_failing_one() -> dict[str, Any]:
    return one_step("chaos.fail", input={"retryable": False})


def test_a_run_that_fails_undisturbed_is_told_with_its_step_and_nothing_is_tried() -> None:
    found = explore(a_failing_one())
    assert (found.end, len(found.points), len(found.wrong)) == ("failed (step_failed)", 1, 1)
    assert str(found.wrong[0]) == "undisturbed"
    assert "the run is failed (step_failed), though nothing disturbs it; expected was succeeded" in said(found)
    assert any(text.startswith("step one: failed: ") for text in said(found))
    with pytest.raises(WrongEnds, match="though nothing disturbs it"):
        found.must_be_right()


def test_a_run_that_is_to_fail_is_explored_to_its_failure() -> None:
    found = explore(a_failing_one(), ends=Status.FAILED)
    found.must_be_right()
    assert (found.end, len(found.points) > 10) == ("failed (step_failed)", True)
    assert "expected was failed" in " ".join(said(explore(EXAMPLES / "tiny.yaml", ends=Status.FAILED)))


def test_a_run_whose_step_refuses_it_is_explored_to_that_failure() -> None:
    steps = {
        "work": {"task": "core.echo", "input": {"n": 1}},
        "refuse": {"fail": {"message": "no: ${steps.work.output.n}", "type": "refused"}, "needs": ["work"]},
        "never": {"task": "core.echo", "needs": ["refuse"]},
    }
    seen = []
    found = explore(
        {"name": "refused", "steps": steps}, ends=Status.FAILED, check=lambda run, effects: seen.append(run.error)
    )
    found.must_be_right()
    assert len(found.points) > 10
    assert set(seen) == {Failure(type="refused", message="no: 1")}


# --- an engine that is broken -----------------------------------------------------------------


def test_an_engine_that_forgets_who_was_interrupted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(draft: Draft) -> None:
        """Takes what the dead worker had begun for its own."""

    for module in (interruption, *_users_of(interruption.interrupt_all)):
        monkeypatch.setattr(module, "interrupt_all", nobody)
    assert any("was executed twice in attempt 1" in text for text in said(explore(EXAMPLES / "tiny.yaml")))


def test_an_engine_whose_settled_steps_are_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(draft: Draft, workflow: Workflow) -> None:
        """Begins everything anew after a death."""
        for name in list(draft.steps):
            draft.step(name, status=StepStatus.PENDING)

    for module in (interruption, *_users_of(interruption.interrupt_all)):
        monkeypatch.setattr(module, "interrupt_all", again)
    assert explore(one_step("core.echo")).wrong


def _users_of(function: Callable[..., Any]) -> list[Any]:
    """The modules that imported it by name."""
    return [
        m for m in list(sys.modules.values()) if getattr(m, "interrupt_all", None) is function and m is not interruption
    ]


# --- what it costs others ---------------------------------------------------------------------


@pytest.mark.parametrize("module", ["fanfold.testing.pytest_plugin", "fanfold.commands.explore"])
def test_whoever_does_not_explore_loads_nothing_of_the_service(module: str) -> None:
    code = f"import {module}, sys; print([name for name in sys.modules if name.startswith('fanfold')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = ("fanfold.engine.rules", "fanfold.engine.record", "fanfold.service", "fanfold.adapters", "fanfold.tasks")
    assert not [name for name in ast.literal_eval(loaded) if name.startswith(heavy)]


def test_in_a_worker_nobody_listens_to_effects() -> None:
    assert RECORDER.get() is None
    effect("charge", key="k")


# --- the command line -------------------------------------------------------------------------


def test_the_command_shows_every_place_and_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", str(EXAMPLES / "tiny.yaml"), "--input", '{"name": "Ada"}']) == 0
    out = capsys.readouterr().out
    assert "before worker 1's call 1, queue.receive (model/resume)" in out
    assert "tiny: 8 calls, 14 tries, none of them end wrong." in out
    assert "Undisturbed, the run is succeeded." in out


def test_the_command_exits_with_1_where_the_run_fails_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flow.json").write_text(json.dumps(a_failing_one()))
    assert main(["explore", str(tmp_path / "flow.json")]) == 1
    out = capsys.readouterr().out
    assert "Undisturbed, the run is failed (step_failed)." in out
    assert "step one: failed: " in out
    assert main(["explore", str(tmp_path / "flow.json"), "--ends", "failed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["end"] == "failed (step_failed)"
    assert main(["explore", str(tmp_path / "flow.json"), "--ends", "running"]) == 2


def test_the_command_names_what_went_wrong_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @task("test.charge")
    async def charge(given: Any) -> Any:
        effect("charge")

    (tmp_path / "flow.json").write_text(json.dumps(one_step("test.charge")))
    assert main(["explore", str(tmp_path / "flow.json")]) == 1
    out = capsys.readouterr().out
    assert "step one: effect 'charge' happened 2 times without an idempotency key, undisturbed once" in out
    assert main(["explore", str(tmp_path / "flow.json"), "--json"]) == 1
    wrong = [point for point in json.loads(capsys.readouterr().out)["points"] if point["wrong"]]
    assert {fault["step"] for point in wrong for fault in point["wrong"]} == {"one"}


@pytest.mark.parametrize(
    ("text", "said"), [("steps: [", "is no workflow document"), ("name: x\nsteps: {a: {task: no.such}}", "/steps/a")]
)
def test_a_file_that_is_no_workflow_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "flow.yaml").write_text(text)
    assert main(["explore", str(tmp_path / "flow.yaml")]) == 2
    assert said in capsys.readouterr().err
    assert main(["explore", str(tmp_path / "missing.yaml")]) == 2


def test_a_class_of_ones_own_is_explored_with_ones_own_settings() -> None:
    settings = Settings(classes={"harness": ClassSettings(lanes=("high", "normal"))}, lease_seconds=20)
    document = {**one_step("core.echo"), "class": "harness"}
    explore(document, settings=settings).must_be_right()
    explore(document).must_be_right()
