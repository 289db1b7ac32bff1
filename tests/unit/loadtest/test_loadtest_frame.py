"""The load tests' frame: options, counting, the driver's rows, the past, and what becomes of a scenario."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from typer.testing import CliRunner

from fanfold.engine.ports import IfAbsent, RunKey
from loadtest import __main__ as command
from loadtest.counting import Rows, drained, executions, rows
from loadtest.options import Numbers, chosen, options_of
from loadtest.results import read
from loadtest.results import rows as result_rows
from loadtest.sampling import sampled
from loadtest.scenario import Found, Session, perform
from loadtest.scenarios import SCENARIOS
from loadtest.scenarios.driver import driver
from loadtest.server import identity, settings_of
from loadtest.swarm import requests_in
from loadtest.synthetic_history import past_id, past_run, past_store
from loadtest.verdict import at_most, equal
from tests.support.clock import START

QUICK = {"seconds": 2.0}


def tiny(
    session: Session,
    *,
    seconds: Annotated[float, "How long."] = 30.0,
    levels: Numbers = Numbers((1, 2)),  # noqa: B008  # immutable
) -> Found:
    """A scenario that measures what it was told."""
    if seconds == 13:
        raise RuntimeError("no luck")
    session.recorder.row(seconds=seconds)
    slow = session.timed(at_most("seconds", seconds, 1))
    return Found(figures={"levels": list(levels)}, checks=[equal("levels", len(levels), 2), slow])


class Listing:
    """A client that lists runs from a script: one answer for each time it is asked."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self._answers = list(answers)

    def runs(self, **asked: Any) -> Iterator[dict[str, Any]]:
        """The next answer, of the statuses asked for."""
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        wanted = asked.get("status")
        return iter([run for run in answer if wanted is None or run["status"] in wanted.split(",")])


def a_row(number: int, status: str, **times: str) -> dict[str, Any]:
    """A run as a list tells of it."""
    none = {"created_at": "2026-11-30T12:00:00.000Z", "started_at": None, "finished_at": None}
    return {"id": f"r{number}", "status": status, **none, **times}


def test_an_option_is_as_given_else_of_the_short_version_else_the_scenarios_own() -> None:
    assert chosen(tiny, {"seconds": None}, quick=False) == {"seconds": 30.0, "levels": (1, 2)}
    assert chosen(tiny, {}, quick=True) == {"seconds": 2.0, "levels": (1, 2)}
    assert chosen(tiny, {"seconds": 5.0}, quick=True)["seconds"] == 5.0
    assert [(option.name, option.kind, option.meaning) for option in options_of(tiny)] == [
        ("seconds", float, "How long."),
        ("levels", Numbers, ""),
    ]


def test_a_short_version_of_an_option_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUICK, "minutes", 2.0)
    with pytest.raises(TypeError, match="minutes"):
        options_of(tiny)


@pytest.mark.parametrize("text", ["", "5,", "a", "0", "5,-1"])
def test_what_is_no_list_of_positive_numbers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|float"):
        Numbers.parse(text)


def test_numbers_are_read_and_shown_as_they_are_written() -> None:
    assert Numbers.parse("5,2.5,100") == (5.0, 2.5, 100.0)
    assert str(Numbers.parse("5,2.5,100")) == "5,2.5,100"


def test_the_short_version_shows_times_and_claims_counts_only(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"name": "tiny", "kind": "memory"}
    assert perform(tiny, folder=tmp_path / "quick", quick=True, **facts)
    assert not perform(tiny, folder=tmp_path / "full", quick=False, **facts)
    assert read(tmp_path / "quick")["environment"]["options"] == {"seconds": 2.0, "levels": [1.0, 2.0]}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`python -m loadtest …` with the scenario above as `tiny`."""
    app = command.typer.Typer(rich_markup_mode=None)
    monkeypatch.setattr(command, "app", app)
    command._command("tiny", tiny)
    app.command()(command.show)
    return lambda *words: CliRunner().invoke(app, ["tiny", *words])


def test_the_exit_status_tells_a_claim_that_fails_from_a_measurement_that_fails(run: Any, tmp_path: Path) -> None:
    def status(name: str, *words: str) -> int:
        code: int = run("--target", "memory", "--out", str(tmp_path / name), *words).exit_code
        return code

    assert status("good", "--seconds", "1") == 0
    assert status("bad", "--seconds", "1.5") == 1
    assert status("broken", "--seconds", "13") == 2
    assert read(tmp_path / "broken")["error"] == "RuntimeError: no luck"
    assert status("good") == 2, "a result is never written over"
    assert status("levels", "--levels", "3,x") == 2
    assert not (tmp_path / "levels").exists()
    assert run("--target", "somewhere").exit_code == 2


def test_help_tells_what_an_option_means_and_its_values(run: Any) -> None:
    told = " ".join(run("--help").output.split())
    assert "How long. [default: 30.0; quick: 2.0]" in told
    assert "--levels N,N,…" in told


def test_every_scenario_has_a_first_line_and_says_what_each_of_its_options_means() -> None:
    for name, scenario in SCENARIOS.items():
        assert (sys.modules[scenario.__module__].__doc__ or "").strip(), name
        assert all(option.meaning for option in options_of(scenario)), name


def test_rows_are_counted_by_status_and_timed_by_their_own_times() -> None:
    client: Any = Listing(
        [
            a_row(1, "succeeded", started_at="2026-11-30T12:00:00.500Z", finished_at="2026-11-30T12:00:02.000Z"),
            a_row(2, "waiting", started_at="2026-11-30T12:00:01.000Z"),
            a_row(3, "queued"),
        ]
    )
    found = rows(client, "load=x")
    assert (found.total, found.open, found.count("succeeded"), found.count("failed")) == (3, 2, 1, 0)
    assert found.seconds("created_at", "started_at") == [0.5, 1.0]
    assert found.seconds("created_at", "finished_at") == [2.0]


def test_a_tag_is_drained_once_nothing_of_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.counting.PAUSE_SECONDS", 0)
    open_one, ended = [a_row(1, "waiting")], [a_row(1, "succeeded")]
    client: Any = Listing(open_one, open_one, ended)
    assert drained(client, "load=x", within_seconds=60).ids == {"succeeded": ("r1",)}
    stuck: Any = Listing(open_one)
    with pytest.raises(TimeoutError, match="1 of 1 runs had not ended"):
        drained(stuck, "load=x", within_seconds=0)


def test_executions_are_counted_by_run_and_step_and_a_missing_ledger_is_none(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    assert not executions(ledger)
    ledger.write_text("".join(json.dumps({"run": run, "step": "a"}) + "\n" for run in ("r1", "r2", "r1")))
    assert executions(ledger) == {("r1", "a"): 2, ("r2", "a"): 1}
    assert Rows(ids={}).total == 0


def test_the_drivers_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    row = {"name": "submit", "begun": 1.5, "seconds": 0.25, "status": 429, "error": "", "facts": {"n": 1}}
    (tmp_path / "raw").write_text(json.dumps(row) + "\n")
    (request,) = requests_in(tmp_path / "raw")
    assert (request.name, request.begun, request.status, request.facts) == ("submit", 1.5, 429, {"n": 1})


async def test_a_past_is_listed_newest_first_read_by_id_and_goes_on_with_new_runs() -> None:
    store, meter = past_store("load", 1_000_000, until=START)
    key = RunKey(tenant="load", run_id=past_id(999_999))
    newest = await store.get(key, now=START)
    assert newest is not None
    assert (newest.terminal, newest.created_at) == (True, START - timedelta(seconds=1))
    assert await store.get(RunKey(tenant="load", run_id=past_id(1_000_000)), now=START) is None
    assert await store.get(RunKey(tenant="other", run_id=past_id(5)), now=START) is None
    new = past_run("load", 1_000_003, at=START)
    await store.put(new, IfAbsent(), now=START)
    page = await store.page("load", "succeeded", limit=3)
    assert [each.run_id for each in page] == [new.id, past_id(999_999), past_id(999_998)]
    await store.put(new, IfAbsent(), now=START + timedelta(days=900))  # expired: replaced, and listed once
    assert [each.run_id for each in await store.page("load", "succeeded", limit=2)] == [new.id, past_id(999_999)]
    assert meter.calls["GetItem"] == 3


def test_a_past_that_is_no_multiple_of_ten_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of ten"):
        past_store("load", 15, until=START)


async def test_a_token_in_memory_is_who_it_says() -> None:
    ada = await identity({"headers": {"authorization": "Bearer noisy.ada"}})
    assert (ada["tenant"], ada["owner"]) == ("noisy", "ada")
    assert (await identity({"headers": {}}))["tenant"] == "load"


def test_a_service_in_memory_has_the_pools_and_settings_it_is_given(tmp_path: Path) -> None:
    given = {"submits_per_minute": 0}
    settings = settings_of({"model": 8, "harness": 0}, max_queue_depth=5, ledger=tmp_path / "l", given=given)
    assert set(settings.classes) == {"model", "harness"}
    assert settings.classes["model"].max_queue_depth == 5
    assert settings.submits_per_minute == 0


def test_a_process_is_looked_at_until_the_block_ends() -> None:
    with sampled({"this": os.getpid(), "none": 2**22 + 1}, every_seconds=60) as samples:
        pass
    assert len(samples["this"]) == 2
    assert samples["this"][-1].resident_mb > 1
    assert samples["this"][-1].descriptors > 2
    assert samples["none"] == []


def test_the_driver_sends_by_the_clock_and_as_long_as_it_was_told_to(tmp_path: Path) -> None:
    options = {"users": Numbers((1,)), "rates": Numbers((20,)), "seconds": 0.5}
    assert perform(driver, name="driver", kind="memory", folder=tmp_path / "it", quick=True, options=options)
    by_phase: dict[str, list[float]] = {"1 users": [], "20/s": []}
    for row in result_rows(tmp_path / "it"):
        by_phase[row["phase"]].append(row["begun"])
    # However long Locust took to start: its time begins with its first user.
    assert len(by_phase["1 users"]) > 1
    # Counted from when each was meant to be sent, whenever it was.
    begun = sorted(by_phase["20/s"])
    assert [later - begun[0] for later in begun] == pytest.approx([number / 20 for number in range(10)], abs=1e-5)


def test_what_the_server_logs_after_its_address_fills_no_pipe(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest.server", "--ledger", str(tmp_path / "ledger"), "--past", "10"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as server,
    ):
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            assert json.loads(server.stdout.readline())["url"].startswith("http://127.0.0.1:")
            assert server.stdout.read() == "", "the pipe has ended though the server goes on"
            assert server.poll() is None
            server.stdin.close()
            assert server.wait(60) == 0
        finally:
            server.kill()
