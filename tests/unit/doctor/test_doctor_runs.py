"""What the doctor finds in tokens, places, runs and the clock: each thing broken alone, on a deployment in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest

from fanfold.doctor import clock, runs, slots, tokens, workers
from fanfold.doctor.deployment import Deployment
from fanfold.doctor.examination import examine
from fanfold.doctor.finding import Finding
from fanfold.engine.language.maps import MapRecord, MapState, Via
from fanfold.engine.payload import BlobRef
from fanfold.engine.ports import IfAbsent, RunKey
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.messages import RESUME, QueueName, Wake
from fanfold.engine.record.run import SCHEMA, Run, Sealed, Slot, Status, StepState, StepStatus
from fanfold.engine.record.segments import Segment
from fanfold.service.maps import map_key
from fanfold.service.settings import Settings
from fanfold.service.wiring import Services
from tests.support.builders import a_full_run, a_run, a_submission, a_token, an_envelope
from tests.support.clock import START
from tests.support.world import World

NOW = START + timedelta(hours=9)
CHECKS = (tokens.CHECK, slots.CHECK, workers.CHECK, runs.CHECK, clock.CHECK)


class Memory(Deployment):
    """A deployment whose ports are in memory and whose stack is not looked at."""

    def __init__(self, session: boto3.Session) -> None:
        super().__init__("memory", session, now=NOW)
        self.outputs = {"Settings": "in memory"}
        self.settings = Settings()

        async def make() -> Services:
            return World().services

        self.services = asyncio.run(make())

    def do(self, what: Coroutine[Any, Any, Any]) -> Any:
        async def done() -> Any:
            return await what

        return asyncio.run(done())

    def store(self, run: Run) -> Run:
        self.do(self.services.runs.put(run, IfAbsent(), now=START))
        return run

    def found(self) -> list[tuple[str, Finding]]:
        self.__dict__.pop("census", None)
        return [(check.name, finding) for check, finding in examine(self, CHECKS).findings]


@pytest.fixture
def patient(session: boto3.Session) -> Memory:
    made = Memory(session)
    made.do(made.services.tokens.put(a_token(created_at=NOW - timedelta(days=30))))
    return made


def hours_ago(number: float) -> dict[str, Any]:
    """Given to a run: when it was accepted, with the place it took then."""
    at = NOW - timedelta(hours=number)
    return {"created_at": at, "slot": Slot(shard=0, hour=int(at.timestamp()) // 3600)}


def take_slot(patient: Memory, run: Run) -> None:
    patient.do(patient.services.slots.reserve("model", now=run.created_at))


def the_one(found: list[tuple[str, Finding]]) -> tuple[str, Finding]:
    assert len(found) == 1, [finding.what for _, finding in found]
    return found[0]


def test_runs_in_every_healthy_state_are_no_finding(patient: Memory) -> None:
    lease = {"owner": "c000000000000001", "lease_until": NOW + timedelta(seconds=30), "version": 2, "slot": None}
    take_slot(patient, patient.store(a_run(1, **hours_ago(0.1))))
    take_slot(patient, patient.store(a_run(2, **hours_ago(8))))  # a backlog of hours is load, and no fault
    patient.store(a_run(3, status=Status.RUNNING, **lease))
    patient.store(a_run(4, status=Status.WAITING, slot=None, due_at=NOW - timedelta(minutes=2)))
    patient.store(a_run(5, status=Status.WAITING, slot=None, due_at=NOW + timedelta(days=3)))
    patient.store(a_run(6, status=Status.PAUSED, slot=None))
    patient.store(a_run(7, status=Status.FAILED, slot=None, expires_at=NOW + timedelta(days=30)))
    assert patient.found() == []


@pytest.mark.parametrize(
    "run",
    [
        a_run(1, status=Status.WAITING, slot=None, due_at=NOW - timedelta(minutes=4)),
        a_run(1, status=Status.RUNNING, slot=None, owner="c1", lease_until=NOW - timedelta(minutes=6), version=2),
    ],
    ids=["overdue", "its worker is dead"],
)
def test_a_run_nobody_looks_at_is_rung_for(patient: Memory, run: Run) -> None:
    patient.store(run)
    check, finding = the_one(patient.found())
    assert (check, run.id in finding.what) == ("runs", True)
    assert finding.remedy is not None
    for _ in range(2):  # a ring too many costs a look
        finding.remedy.apply()
    resume = QueueName(class_name="model", role=RESUME)
    rung = patient.do(patient.services.queue.receive(resume, limit=10, wait_seconds=0, visibility_seconds=60))
    wake = Wake(tenant=run.tenant, run_id=run.id, submission=run.submission, class_name="model")
    assert [received.message for received in rung] == [wake, wake]


def minutes_ago(number: float) -> dict[str, Any]:
    return hours_ago(number / 60)


def send(patient: Memory, role: str = "normal") -> QueueName:
    """A message of some run in a queue."""
    queue = QueueName(class_name="model", role=role)
    patient.do(patient.services.queue.send(queue, an_envelope(9)))
    return queue


def test_a_run_that_is_queued_for_minutes_while_nobody_works_on_its_lane_is_found(patient: Memory) -> None:
    run = patient.store(a_run(1, **minutes_ago(4)))
    take_slot(patient, run)
    send(patient)
    check, finding = the_one(patient.found())
    assert (check, finding.what) == (
        "workers",
        f"Nobody works on lane normal of class model: 1 run ({run.id}) could have begun over 3 minutes ago, 1 message"
        " waits in queue model/normal, and nobody has taken any.",
    )
    assert "fanfold worker --class model --lanes normal" in finding.fix
    assert finding.remedy is None


def test_a_redriven_run_that_nobody_takes_up_is_found_in_the_queue_where_it_waits(patient: Memory) -> None:
    patient.store(a_run(1, **minutes_ago(9), epoch=1, version=5))
    send(patient, RESUME)
    _, finding = the_one(patient.found())
    assert finding.what.startswith("Nobody works on resume of class model: 1 run")


def redrawn(run: Run, minutes: float) -> Run:
    """The run with something that happened to it so long ago."""
    entry = Entry(seq=2, at=NOW - timedelta(minutes=minutes), type=EventType.RUN_RESUMED)
    return replace(run, journal=(*run.journal, entry))


@pytest.mark.parametrize(
    "run",
    [
        a_run(1, **minutes_ago(2.5)),
        a_run(1, **minutes_ago(9), not_before=NOW - timedelta(minutes=2)),
        a_run(1, **minutes_ago(9), not_before=NOW + timedelta(minutes=2)),
        redrawn(a_run(1, **minutes_ago(9)), 2),
    ],
    ids=["young", "delayed", "still delayed", "just resumed"],
)
def test_a_run_that_could_not_begin_for_long_says_nothing_about_workers(patient: Memory, run: Run) -> None:
    patient.store(run)
    send(patient)
    assert [finding for name, finding in patient.found() if name in ("runs", "workers")] == []


def test_a_backlog_that_somebody_works_off_is_no_finding(patient: Memory) -> None:
    take_slot(patient, patient.store(a_run(1, **minutes_ago(90))))
    queue = send(patient)
    patient.do(patient.services.queue.receive(queue, limit=1, wait_seconds=0, visibility_seconds=60))
    assert patient.found() == []


def test_a_run_queued_past_its_deadline_is_found(patient: Memory) -> None:
    run = a_run(1, **hours_ago(8), queue_deadline=NOW - timedelta(minutes=4))
    take_slot(patient, patient.store(run))
    check, finding = the_one(patient.found())
    assert (check, "past their deadline" in finding.what, finding.remedy) == ("runs", True, None)


@pytest.mark.parametrize("where", [{"class_name": "harness"}, {"lane": "high"}])
def test_a_run_of_a_class_or_lane_that_is_not_deployed_is_found(patient: Memory, where: dict[str, str]) -> None:
    patient.store(a_run(1, status=Status.WAITING, slot=None, due_at=NOW + timedelta(days=1), **where))
    check, finding = the_one(patient.found())
    assert (check, "does not have" in finding.what) == ("runs", True)


def test_a_run_of_newer_code_is_found_and_hides_no_other(patient: Memory) -> None:
    newer, overdue = (
        patient.store(a_run(n, status=Status.WAITING, slot=None, due_at=NOW - timedelta(minutes=4))) for n in (1, 2)
    )
    rows = patient.services.runs._rows  # what newer code would have put there
    rows[RunKey(tenant=newer.tenant, run_id=newer.id)] |= {"z": {"N": str(SCHEMA + 1)}, "b": {"B": b"?"}}
    found = [finding.what for _, finding in patient.found()]
    assert [overdue.id in found[0], newer.id in found[0], newer.id in found[1]] == [True, False, True]
    assert len(found) == 2


@pytest.mark.parametrize("gone", [True, False])
def test_a_run_of_which_a_sealed_part_is_damaged_is_found(patient: Memory, gone: bool) -> None:
    run = a_full_run(sealed=Sealed(newest=f"{a_submission()}#0000000001#a#00", last_seq=2), due_at=NOW, slot=None)
    patient.store(run)
    if not gone:
        segment = Segment(name=str(run.sealed.newest), previous=None)
        patient.do(patient.services.runs.put_segment(RunKey(tenant=run.tenant, run_id=run.id), segment, now=START))
        patient.services.runs._segments[RunKey(tenant=run.tenant, run_id=run.id)][0]["b"] = {"B": b"?"}
    (what,) = (finding.what for _, finding in patient.found() if "can't be read" in finding.what)
    assert run.id in what


def test_a_batch_of_an_open_map_whose_record_is_damaged_is_found(patient: Memory) -> None:
    state = MapState(via=Via.STEP_FUNCTIONS, items=4, batch_size=2, plan=BlobRef(key="k", bytes=1, sha256="ab" * 32))
    step = StepState(status=StepStatus.WAITING, attempts=1, map=state, due_at=NOW + timedelta(hours=1))
    run = patient.store(
        a_run(1, status=Status.WAITING, due_at=NOW + timedelta(hours=1), slot=None, steps={"only": step})
    )
    records = patient.services.map_records
    for first in (0, 2):
        record = MapRecord(try_number=1, first=first, plan="p", results=())
        patient.do(records.put(map_key(run, "only"), record, expires_at=NOW))
    assert patient.found() == []
    records._partitions[map_key(run, "only")]["0000001#0000002"]["b"] = {"B": b"?"}
    _, finding = the_one(patient.found())
    assert (run.id in finding.what, "redrive" in finding.fix) == (True, True)


def test_slots_that_nobody_can_return_any_more_are_found(patient: Memory) -> None:
    run = a_run(1, **hours_ago(6))
    for _ in range(3):
        take_slot(patient, run)
    patient.store(run)
    check, finding = the_one(patient.found())
    assert (check, "counts 2 queue slots" in finding.what) == ("slots", True)


def test_a_slot_whose_run_may_still_come_is_no_finding(patient: Memory) -> None:
    take_slot(patient, a_run(1, **hours_ago(2)))
    assert patient.found() == []


def test_more_queued_runs_than_slots_are_found(patient: Memory) -> None:
    patient.store(a_run(1, **hours_ago(3)))
    check, finding = the_one(patient.found())
    assert (check, "1 queued runs more" in finding.what) == ("slots", True)


def test_a_token_of_half_a_year_that_never_ends_is_found(patient: Memory) -> None:
    old = a_token(2, created_at=NOW - timedelta(days=181))
    ends = a_token(3, created_at=NOW - timedelta(days=181), expires_at=NOW + timedelta(days=1))
    for token in (old, ends):
        patient.do(patient.services.tokens.put(token))
    check, finding = the_one(patient.found())
    assert (check, old.id in finding.what, finding.remedy) == ("tokens", True, None)


def test_an_expired_token_is_found_and_revoked(patient: Memory) -> None:
    expired = a_token(2, created_at=START, expires_at=NOW - timedelta(days=1))
    patient.do(patient.services.tokens.put(expired))
    check, finding = the_one(patient.found())
    assert (check, expired.id in finding.what) == ("tokens", True)
    assert finding.remedy is not None
    finding.remedy.apply()
    finding.remedy.apply()
    assert patient.found() == []


@pytest.mark.parametrize(("seconds", "word"), [(7.0, "behind"), (-7.0, "ahead of")])
def test_a_clock_that_is_off_is_found(patient: Memory, seconds: float, word: str) -> None:
    patient.services = replace(patient.services, clock_offset=lambda: seconds)
    check, finding = the_one(patient.found())
    assert (check, word in finding.what) == ("clock", True)
    patient.services = replace(patient.services, clock_offset=lambda: seconds / 2)
    assert patient.found() == []
