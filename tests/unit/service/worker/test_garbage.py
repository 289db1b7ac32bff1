"""What a run leaves in its worker's memory: nothing that only a look for garbage would find."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from fanfold.service.payloads import Payloads
from fanfold.service.worker.garbage import GENERATIONS, look_seldom
from fanfold.service.worker.run_coordinator import RunCoordinator
from tests.support.virtual import virtually
from tests.unit.service.worker.test_shell import DIAMOND, Play, until_idle

MAP = {"steps": {"each": {"map": {"over": [1, 2, 3], "task": "core.echo"}}}}
WAIT = {"steps": {"gate": {"wait": {"signal": "go"}}}}


@pytest.fixture
def unseen() -> Iterator[None]:
    """Nobody looks for garbage."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize("document", [DIAMOND, MAP, WAIT], ids=["diamond", "map", "wait"])
def test_what_held_a_run_is_gone_with_it(document: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[object]] = []
    for kind in (RunCoordinator, Payloads):
        begin = kind.__init__

        def noted(self: object, *given: object, begin: object = begin, **named: object) -> None:
            made.append(weakref.ref(self))
            begin(self, *given, **named)  # type: ignore[operator]

        monkeypatch.setattr(kind, "__init__", noted)

    @virtually
    async def played() -> None:
        play = await Play().submit(document)
        await play.process.work()
        await until_idle(play.process)
        held = [ref() for ref in made if isinstance(ref(), RunCoordinator | Payloads)]
        assert made
        assert held == []

    played()


def test_a_worker_looks_for_garbage_seldom() -> None:
    usual = gc.get_threshold()
    try:
        look_seldom()
        assert gc.get_threshold() == GENERATIONS
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
