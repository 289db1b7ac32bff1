"""What another setting does to runs under way: what docs/settings.md says of it, and never a broken promise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path

import pytest

from fanfold.engine.language.maps import ItemResult, MapState, Via
from fanfold.engine.payload import BlobRef
from fanfold.engine.record.run import Status, StepState, StepStatus
from fanfold.engine.rules.events import PauseAsked, RedriveAsked, ResumeAsked
from fanfold.service.maps import Maps
from fanfold.service.settings import FIXED, ClassSettings, Settings
from tests.support.builders import a_run
from tests.support.clock import START
from tests.support.game import LIMITS, Game, a_flow
from tests.support.virtual import virtually
from tests.support.world import World

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"
DAY = 86_400


def table(heading: str) -> list[str]:
    """The first cells of the table below this heading row."""
    text = PAGE.read_text(encoding="utf-8")
    _, _, rest = text.partition(f"{heading}\n")
    rows: Sequence[str] = rest.partition("\n\n")[0].splitlines()
    return [found[1] for row in rows if (found := re.match(r"\| `([a-z_]+)` \| .+ \|", row))]


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("| setting | what a change does to active runs |", Settings),
        ("| field of a class | what a change does to active runs |", ClassSettings),
    ],
)
def test_of_every_setting_it_is_said_what_a_change_does_to_runs_under_way(heading: str, kind: type) -> None:
    assert sorted(table(heading)) == sorted(f.name for f in fields(kind))


def test_what_a_deployment_may_not_set_is_said_so() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {name for name in FIXED if f"| `{name}` | Refused on AWS" in text} == FIXED
    assert text.count("Refused on AWS") == len(FIXED)


def with_life(game: Game, days: int) -> Game:
    game.limits = replace(LIMITS, max_life=timedelta(days=days))
    return game


def test_a_shorter_longest_life_takes_nothing_from_the_deadline_a_run_has() -> None:
    flow = a_flow({"gate": {"wait": {"signal": "go"}}}, timeout="300d")
    game = with_life(Game(flow), 365).claim()
    deadline = game.run.deadline
    with_life(game.after(100 * DAY), 10)
    game.feed(PauseAsked(by="Ada"))
    game.after(DAY).feed(ResumeAsked(by="Ada"))
    assert game.run.deadline == deadline
    assert game.claim().run.status is Status.WAITING


def test_a_shorter_longest_life_lets_a_redrive_have_what_its_run_had() -> None:
    flow = a_flow({"a": {"retry": {"max_attempts": 1}}, "gate": {"wait": {"signal": "go"}}}, timeout="100d")
    game = with_life(Game(flow), 365).claim()
    deadline = game.run.deadline
    game.after(50 * DAY).fail("a", retryable=False)
    with_life(game, 10).after(DAY).feed(RedriveAsked(by="Ada"))
    assert START < game.run.deadline == min(deadline, game.now + timedelta(days=100))
    assert game.claim().started == [("a", 2)]


@virtually
async def test_a_batch_of_a_map_that_was_cut_for_smaller_outputs_is_recorded() -> None:
    world = World(Settings(chaos=True, map_batch=25, inline_bytes=12_000))
    of_before = MapState(via=Via.STEP_FUNCTIONS, items=200, batch_size=200, plan=BlobRef(key="k", bytes=1, sha256="0"))
    steps = {"each": StepState(status=StepStatus.WAITING, attempts=1, map=of_before)}
    run = a_run(1, status=Status.WAITING, version=2, steps=steps)
    results = [ItemResult(index=n, output="x" * 11_000) for n in range(200)]
    await Maps(world.services).record(run, "each", "0" * 16, results)
    (record,) = await Maps(world.services).records(run, "each")
    assert [result.index for result in record.results] == list(range(200))
    assert all(isinstance(result.output, BlobRef) for result in record.results)
