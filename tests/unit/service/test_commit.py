"""A commit by somebody who holds no run: one put, its own write recognised, its effects carried out."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, get_args

import pytest

from fanfold.engine.errors import Unanswered
from fanfold.engine.language.document_check import check
from fanfold.engine.ports import IfAbsent, Moment, RunKey
from fanfold.engine.record.run import Run, Slot
from fanfold.engine.rules.decide import Decision
from fanfold.engine.rules.effects import (
    Effect,
    ReleaseSlot,
    SendEnvelope,
    SendWake,
    StartAttempt,
    StartMap,
    StopMap,
)
from fanfold.service.commit import Commit, Committed, Stands, by_write_id, carry_out, next_record, put
from fanfold.service.wiring import Services
from tests.support.builders import a_run, a_workflow
from tests.support.faults import Fault, Faulty
from tests.support.http import memory_services

NOW = a_run().created_at
EVERY = (
    StartAttempt(step="a", attempt=1, input=None),
    SendWake(at=NOW + timedelta(seconds=1)),
    ReleaseSlot(class_name="model", slot=Slot(shard=0, hour=0)),
    StartMap(step="m"),
    StopMap(step="m"),
    SendEnvelope(),
)


class Followed:
    """Notes the effects that are to be carried out beside a run."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def follow(self, run: Run, effect: Effect, *, committed: Moment) -> None:
        self.effects.append(effect)


async def test_every_effect_but_an_attempt_is_carried_out_by_whoever_commits() -> None:
    assert {type(effect) for effect in EVERY} == set(get_args(Effect)), "an effect that this test does not know"
    _, _, commit = await prepared()
    commit = replace(commit, decision=replace(commit.decision, effects=EVERY))
    followed: Any = Followed()
    carry_out(Committed(commit=commit, record=commit.run), followed)
    assert followed.effects == list(EVERY[1:])


async def test_a_holder_begins_the_attempts_that_it_committed() -> None:
    _, _, commit = await prepared()
    commit = replace(commit, decision=replace(commit.decision, effects=EVERY))
    followed: Any = Followed()
    begun: list[StartAttempt] = []
    carry_out(Committed(commit=commit, record=commit.run), followed, begin=begun.append)
    assert (begun, followed.effects) == ([EVERY[0]], list(EVERY[1:]))


async def prepared() -> tuple[Services, Faulty, Commit]:
    """A run's record in a store that can fail, and a commit over it."""
    services = memory_services()
    faulty = Faulty(services.runs)
    services = replace(services, runs=faulty)
    run = a_run()
    await services.runs.put(run, IfAbsent(), now=services.clock.now())
    decision = Decision(run=run, effects=(), changed=True)
    workflow = check(a_workflow().document, name="tiny", tasks=frozenset({"core.echo"}), classes={"model": 60.0})
    sent = Moment.of(services.clock)
    wanted = next_record(services, run, decision)
    return services, faulty, Commit(before=run, run=wanted, decision=decision, workflow=workflow, sent=sent)


async def stored(services: Services, run: Run) -> Run | None:
    return await services.runs.get(RunKey(tenant=run.tenant, run_id=run.id), now=services.clock.now())


async def test_a_record_is_put_once_under_its_next_version_and_names_its_write() -> None:
    services, faulty, commit = await prepared()
    assert isinstance(await put(services, commit, by_write_id(commit)), Committed)
    standing = await stored(services, commit.run)
    assert standing is not None
    assert (standing.version, standing.write_id) == (commit.before.version + 1, commit.run.write_id)
    assert (faulty.count("put"), faulty.count("get")) == (2, 1), "one put of its own, and no read before the test's"


async def test_a_put_that_meets_another_record_is_not_done_and_says_which_stands() -> None:
    services, faulty, commit = await prepared()
    other = replace(commit, run=next_record(services, commit.before, commit.decision))
    await put(services, other, by_write_id(other))
    made = await put(services, commit, by_write_id(commit))
    assert isinstance(made, Stands)
    assert made.record is not None
    assert (made.record.write_id, made.error) == (other.run.write_id, None)
    assert faulty.count("get") == 0, "the store's refusal holds the record"


async def test_a_put_that_an_sdk_repeated_against_its_own_first_try_is_recognised() -> None:
    services, faulty, commit = await prepared()
    await put(services, commit, by_write_id(commit))
    again = await put(services, commit, by_write_id(commit))
    assert isinstance(again, Committed)
    assert (again.commit, faulty.count("get")) == (commit, 0)


async def test_a_put_whose_answer_was_lost_is_recognised_in_the_record() -> None:
    services, faulty, commit = await prepared()
    faulty.plan("put", Fault.DONE)
    assert isinstance(await put(services, commit, by_write_id(commit)), Committed)
    assert faulty.count("put") == 2, "it is not made again"


async def test_a_put_that_was_lost_with_its_answer_is_not_taken_for_done() -> None:
    services, faulty, commit = await prepared()
    faulty.plan("put", Fault.LOST)
    made = await put(services, commit, by_write_id(commit))
    assert isinstance(made, Stands)
    assert isinstance(made.error, Unanswered)
    assert made.record == commit.before
    standing = await stored(services, commit.run)
    assert standing is not None
    assert standing.version == commit.before.version


async def test_a_put_without_an_answer_whose_record_can_not_be_read_is_unanswered() -> None:
    services, faulty, commit = await prepared()
    faulty.plan("put", Fault.DONE)
    faulty.plan("get", Fault.DOWN)
    with pytest.raises(Unanswered, match="its record can't be read"):
        await put(services, commit, by_write_id(commit))
