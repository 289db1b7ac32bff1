"""A run as an item: nothing is lost, nothing is confused, and it stays small."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanfold.adapters.aws.run_items import expired, from_item, index_key, pack, run_key, shard_of, size, to_item, unpack
from fanfold.engine.errors import NewerSchema
from fanfold.engine.payload import BlobRef
from fanfold.engine.ports import IndexKey, RunKey
from fanfold.engine.record.run import SCHEMA, Run, Status, StepState
from tests.support.builders import a_run
from tests.support.clock import START
from tests.support.records import CREATED, finished_diamond, hashes, ids, runs

RECORDED = Path(__file__).parents[1] / "data" / "head_v1.json"


@settings(max_examples=60, deadline=None)
@given(run=runs(), index_shards=st.integers(1, 5), due_shards=st.integers(1, 5))
def test_every_record_reads_back_as_it_was_written(run: Run, index_shards: int, due_shards: int) -> None:
    read = from_item(to_item(run, index_shards=index_shards, due_shards=due_shards))
    assert read == run
    assert list(read.steps) == list(run.steps)
    assert repr(read) == repr(run)  # 1, 1.0 and True are equal, and not the same


@given(text=ids() | hashes())
def test_every_id_and_hash_reads_back_as_it_was_written(text: str) -> None:
    assert unpack(pack(text)) == text


def test_ids_and_hashes_are_stored_by_their_bytes() -> None:
    digest = "ab" * 32
    assert [len(pack(text)) for text in ("q7Zk1PfXv0Lw9Rb_", digest, f"sha256:{digest}")] == [13, 33, 33]


def test_a_finished_diamond_fits_into_one_write_unit() -> None:
    assert size(to_item(finished_diamond())) <= 1_024


def test_a_record_written_by_schema_one_stays_readable() -> None:
    recorded = json.loads(RECORDED.read_text())
    item = {
        name: {kind: bytes.fromhex(value) if kind == "B" else value for kind, value in typed.items()}
        for name, typed in recorded.items()
    }
    assert from_item(item) == finished_diamond()


def test_a_users_object_that_looks_like_a_reference_stays_an_object() -> None:
    ref = BlobRef(key="acme/k", bytes=9, sha256="00" * 32)
    for value in ({"$ref": "acme/k", "bytes": 9, "sha256": "00" * 32}, ["acme/k", 9, "00" * 32], ref, [None], [], None):
        run = a_run(input=value, output=value, steps={"only": StepState(output=value)})
        read = from_item(to_item(run))
        assert (read.input, read.output, read.steps["only"].output) == (value, value, value)


def test_a_record_of_newer_code_is_not_read() -> None:
    item = {**to_item(a_run()), "z": {"N": str(SCHEMA + 1)}, "b": {"B": b"of another format"}}
    with pytest.raises(NewerSchema):
        from_item(item)


def test_a_journal_with_a_gap_is_not_written() -> None:
    run = finished_diamond()
    with pytest.raises(ValueError, match="the journal has 3 where 2 must be"):
        to_item(replace(run, journal=run.journal[:1] + run.journal[2:]))


def test_the_keys_name_the_tenant_and_the_run() -> None:
    item = to_item(a_run(id="r1"))
    assert (item["pk"], item["sk"]) == ({"S": "acme#r1"}, {"S": "0"})
    assert run_key(item) == RunKey(tenant="acme", run_id="r1")


def test_the_list_index_sorts_by_creation_and_the_bucket_follows_the_status() -> None:
    run = a_run(id="r1", created_at=CREATED)
    item = to_item(run)
    assert (item["lp"], item["ls"]) == ({"S": "acme#active#0"}, {"S": "1796040000123#r1"})
    assert index_key(item) == IndexKey(tenant="acme", run_id="r1", created_at=CREATED)
    partitions = {status: to_item(replace(run, status=status))["lp"]["S"].split("#")[1] for status in Status}
    assert {s for s, bucket in partitions.items() if bucket == "active"} == {
        Status.QUEUED,
        Status.RUNNING,
        Status.WAITING,
        Status.PAUSED,
    }
    assert partitions[Status.FAILED] == "failed"


def test_only_a_waiting_run_with_a_due_time_is_in_the_due_index() -> None:
    due_at = START + timedelta(seconds=1)
    for status in Status:
        item = to_item(a_run(status=status, due_at=due_at))
        assert ("dp" in item, "ds" in item) == (status is Status.WAITING,) * 2
    item = to_item(a_run(status=Status.WAITING, due_at=due_at))
    assert (item["dp"], item["ds"]) == ({"S": "due#model#0"}, {"N": str(int(due_at.timestamp() * 1000))})
    assert "dp" not in to_item(a_run(status=Status.WAITING))


def test_only_an_ended_run_expires() -> None:
    expires_at = START + timedelta(days=30)
    for status in Status:
        assert ("x" in to_item(a_run(status=status, expires_at=expires_at))) is (
            status in (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)
        )
    item = to_item(a_run(status=Status.SUCCEEDED, expires_at=expires_at))
    assert not expired(item, expires_at)
    assert expired(item, expires_at + timedelta(milliseconds=1))


def test_a_shard_is_the_same_in_every_process() -> None:
    assert [shard_of(f"run-{number}", 4) for number in range(6)] == [1, 3, 1, 3, 0, 2]
    assert shard_of("run-1", 1) == 0


def test_an_items_size_is_counted_as_dynamodb_counts_it() -> None:
    # Names and strings in UTF-8, binary by its bytes, numbers a byte per two digits and one more.
    assert size({"pk": {"S": "é"}, "b": {"B": b"123"}, "n": {"N": "12345"}}) == (2 + 2) + (1 + 3) + (1 + 4)
