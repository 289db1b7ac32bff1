"""What old code stored and sent is finished by this code; what newer code stored and sent is left alone."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from fanfold.engine.errors import NewerSchema
from fanfold.engine.payload import BlobRef
from fanfold.engine.record.run import SCHEMA
from fanfold.engine.rules.events import ResumeAsked, Signalled
from fanfold.service.api.control import Control
from fanfold.service.engine_limits import engine_limits
from fanfold.service.sweeper.expire_queued import QueueExpiry
from fanfold.service.sweeper.sweep import sweep
from fanfold.service.workflow_cache import WorkflowCache
from tests.compat.bench import Bench
from tests.compat.recorder import SCENES, journal_of, record
from tests.compat.recording import DATA, Recording, from_hex, read
from tests.support.builders import a_token

FILES = sorted(DATA.glob("schema-*/*.json"))
NEWEST = DATA / f"schema-{SCHEMA}"


@pytest.fixture
def bench(session: boto3.Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        bench = Bench(session, name=f"compat-{uuid.uuid4().hex[:8]}", now=datetime.fromisoformat("2026-11-30T12:00Z"))
        yield bench
        bench.close()


def load(bench: Bench, recording: Recording) -> None:
    """The world as it was recorded, at the time at which it goes on."""
    bench.clock.set(datetime.fromisoformat(recording.resume_at))
    bench.put_items([from_hex(item) for item in recording.items])
    bench.put_objects(recording.objects)
    for role, body in recording.messages:
        bench.send_body(role, body)


async def move(bench: Bench, kind: str, run_id: str, *rest: Any) -> None:
    """An operator's move, by this code."""
    run = await bench.row(run_id)
    assert run is not None
    control = Control(bench.services, WorkflowCache(bench.services.catalog, bench.settings.classes))
    made = ResumeAsked(by="Ada") if kind == "resume" else Signalled(by="Ada", name=rest[0], payload=rest[1])
    await control.carry_out(run, made)


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.stem}" for path in FILES])
async def test_a_run_of_old_code_is_finished(bench: Bench, path: Path) -> None:
    recording = read(path)
    load(bench, recording)
    bench.executions.over = True  # what went on elsewhere has ended by now
    for expected in recording.expected():
        if expected.journal:
            assert journal_of(await bench.whole(expected.run_id)) == expected.journal
    for order in recording.orders:
        await bench.batch(order)
    for kind, run_id, *rest in recording.moves:
        await move(bench, kind, run_id, *rest)
    await bench.work()
    for expected in recording.expected():
        run = await bench.whole(expected.run_id)
        output = await bench.services.blobs.get(run.output) if isinstance(run.output, BlobRef) else run.output
        assert (run.status, output) == (expected.status, expected.output)
        # Nothing recorded is rewritten, and nothing is missing.
        assert journal_of(run)[: len(expected.journal)] == expected.journal
        assert [entry.seq for entry in run.journal] == list(range(1, len(run.journal) + 1))
        assert not run.terminal or run.expires_at is not None


def test_every_state_is_recorded_in_the_schema_that_this_code_writes() -> None:
    assert {path.stem for path in NEWEST.glob("*.json")} == set(SCENES)


async def sweep_once(bench: Bench) -> None:
    """A pass of the sweeper over the runs of the one tenant there is."""
    services, limits = bench.services, engine_limits(bench.settings)
    await services.tokens.put(a_token())
    settle = QueueExpiry(services, WorkflowCache(services.catalog, bench.settings.classes), limits)
    await sweep(services, limits, now=bench.clock.now(), expire=settle)


NEWER = {"z": {"N": str(SCHEMA + 1)}, "b": {"B": b"of a format to come"}}
HEADS = ["queued", "crashed", "retrying", "paused", "ended"]


@pytest.mark.parametrize("name", HEADS)
async def test_a_record_of_newer_code_is_left_as_it_is(bench: Bench, name: str) -> None:
    recording = read(NEWEST / f"{name}.json")
    load(bench, recording)
    heads = [{**item, **NEWER} for item in bench.items() if item["sk"] == {"S": "0"} and "w" in item]
    bench.put_items(heads)
    for expected in recording.expected():
        with pytest.raises(NewerSchema):
            await bench.row(expected.run_id)
    # Its message is not lost: a copy goes back, not to be delivered at once.
    sent = len(recording.messages)
    await bench.work()
    assert sum(bench.waiting(role) for role in ("normal", "resume")) == sent
    # Nor does the sweeper touch it, or stumble over it.
    bench.clock.set(bench.clock.now() + timedelta(hours=2))
    await sweep_once(bench)
    assert [item for item in bench.items() if item["sk"] == {"S": "0"} and "w" in item] == heads


async def test_a_message_of_newer_code_goes_back_and_stays_among_dead_letters(bench: Bench) -> None:
    recording = read(NEWEST / "queued.json")
    role, body = recording.messages[0]
    bench.send_body(role, json.dumps({**json.loads(body), "z": SCHEMA + 1, "input": "of a format to come"}))
    await bench.work()
    assert bench.waiting(role) == 1
    assert bench.items() == []


def test_every_state_can_be_recorded_again(tmp_path: Path) -> None:
    """A recorder that has rotted is found now, not when the schema changes."""
    record(tmp_path, list(SCENES), lambda line: None)
    assert {path.stem for path in tmp_path.glob("*.json")} == set(SCENES)
