"""What every run store promises."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanfold.engine.errors import Conflict, LimitExceeded, NewerSchema, NotFound, Unreadable
from fanfold.engine.payload import BlobRef
from fanfold.engine.ports import Bucket, Condition, DueKey, FirstClaim, IfAbsent, IfVersion, IndexKey, RunKey, RunStore
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.run import Failure, Reason, Run, Sealed, Slot, Status, StepState, StepStatus
from fanfold.engine.record.segments import Segment
from fanfold.service.api import listing
from tests.contract.backends import DAMAGES, PARTS, WITH_INDEX, WITH_RECORDS, Backend
from tests.support.builders import a_full_run, a_run, a_submission, an_id, index_key_of, key_of

NOW = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)


@pytest.fixture
def store(backend: Backend) -> RunStore:
    return backend.runs()


def ended(run: Run, status: Status = Status.SUCCEEDED, **given: object) -> Run:
    """The next version of a run, ended."""
    changes: dict[str, object] = {"status": status, "version": run.version + 1, "finished_at": NOW, "due_at": None}
    return replace(run, **changes | given)  # type: ignore[arg-type]  # fields by name


def gone(run: Run) -> Run:
    """An ended run whose lifetime is over, though its row is still there."""
    return ended(run, expires_at=NOW - timedelta(seconds=10))


def replacing(run: Run) -> IfVersion:
    """The condition a successor of this version puts."""
    return IfVersion(version=run.version, submission=run.submission)


async def test_a_record_reads_back_as_it_was_written(store: RunStore) -> None:
    run = a_full_run(slot=None, queue_deadline=NOW)
    await store.put(run, IfAbsent(), now=NOW)
    assert await store.get(key_of(run), now=NOW) == run


async def test_every_kind_of_value_survives(store: RunStore) -> None:
    reference = BlobRef(key="acme/r/in.json", bytes=70_000, sha256="ab" * 32)
    run = a_full_run(
        input=reference,
        output={
            "float": 1.0,
            "tiny": 5e-324,
            "big": 2**70,
            "text": "\U0001f600 \u0000",
            "none": None,
            "empty": [{}, ""],
        },
        status=Status.FAILED,
        reason=Reason.STEP_FAILED,
        error=Failure(type="ValueError", message="Ünicode"),
        finished_at=NOW,
        due_at=None,
        expires_at=NOW + timedelta(days=30),
        slot=Slot(shard=3, hour=492_000),
        journal=(
            Entry(seq=8, at=NOW, type=EventType.STEP_FAILED, step="only", attempt=2, data={"error": {"type": "x"}}),
        ),
        sealed=Sealed(newest="s1", last_seq=7, statuses="ss."),
    )
    await store.put(run, IfAbsent(), now=NOW)
    assert await store.get(key_of(run), now=NOW) == run


async def test_the_order_of_steps_is_kept(store: RunStore) -> None:
    only = a_full_run().steps["only"]
    run = a_full_run(steps=dict.fromkeys(("zeta", "alpha", "mid"), only))
    await store.put(run, IfAbsent(), now=NOW)
    stored = await store.get(key_of(run), now=NOW)
    assert stored is not None
    assert list(stored.steps) == ["zeta", "alpha", "mid"]


async def test_an_absent_run_reads_as_none(store: RunStore) -> None:
    assert await store.get(RunKey(tenant="acme", run_id=an_id(9)), now=NOW) is None


async def test_one_tenants_id_is_not_anothers(store: RunStore) -> None:
    mine, theirs = a_run(input="mine"), a_run(input="theirs", tenant="other")
    await store.put(mine, IfAbsent(), now=NOW)
    assert await store.get(key_of(theirs), now=NOW) is None
    await store.put(theirs, IfAbsent(), now=NOW)
    assert await store.get(key_of(mine), now=NOW) == mine


async def test_creating_a_run_that_is_there_conflicts_and_shows_it(store: RunStore) -> None:
    run = a_full_run()
    await store.put(run, IfAbsent(), now=NOW)
    with pytest.raises(Conflict) as conflict:
        await store.put(a_run(submission=a_submission(2)), IfAbsent(), now=NOW)
    assert conflict.value.current == run
    assert await store.get(key_of(run), now=NOW) == run


async def test_a_first_claim_creates_the_row_when_it_is_absent(store: RunStore) -> None:
    run = a_run(version=2, status=Status.RUNNING)
    await store.put(run, FirstClaim(submission=run.submission), now=NOW)
    assert await store.get(key_of(run), now=NOW) == run


async def test_a_first_claim_replaces_version_one_of_its_own_submission(store: RunStore) -> None:
    run = a_run()
    await store.put(run, IfAbsent(), now=NOW)
    claimed = replace(run, version=2, status=Status.RUNNING)
    await store.put(claimed, FirstClaim(submission=run.submission), now=NOW)
    assert await store.get(key_of(run), now=NOW) == claimed


async def test_a_first_claim_of_another_submission_conflicts(store: RunStore) -> None:
    run = a_run()
    await store.put(run, IfAbsent(), now=NOW)
    with pytest.raises(Conflict) as conflict:
        await store.put(a_run(version=2, submission=a_submission(2)), FirstClaim(submission=a_submission(2)), now=NOW)
    assert conflict.value.current == run


async def test_a_second_first_claim_conflicts(store: RunStore) -> None:
    run = a_run(version=2, status=Status.RUNNING)
    await store.put(run, FirstClaim(submission=run.submission), now=NOW)
    with pytest.raises(Conflict) as conflict:
        await store.put(run, FirstClaim(submission=run.submission), now=NOW)
    assert conflict.value.current == run


async def test_of_many_claims_at_once_one_wins(store: RunStore) -> None:
    run = a_run()
    await store.put(run, IfAbsent(), now=NOW)
    claims = [replace(run, version=2, status=Status.RUNNING, owner=f"c{number:015d}") for number in range(8)]
    answers = await asyncio.gather(
        *(store.put(claim, FirstClaim(submission=run.submission), now=NOW) for claim in claims),
        return_exceptions=True,
    )
    winner = await store.get(key_of(run), now=NOW)
    assert [claim for claim, answer in zip(claims, answers, strict=True) if isinstance(answer, int)] == [winner]
    assert [answer.current for answer in answers if isinstance(answer, Conflict)] == [winner] * 7


async def test_of_many_creations_at_once_one_wins(store: RunStore) -> None:
    runs = [a_run(submission=a_submission(number)) for number in range(8)]
    answers = await asyncio.gather(*(store.put(run, IfAbsent(), now=NOW) for run in runs), return_exceptions=True)
    winner = await store.get(key_of(runs[0]), now=NOW)
    assert [run for run, answer in zip(runs, answers, strict=True) if isinstance(answer, int)] == [winner]


async def test_a_version_is_replaced_once(store: RunStore) -> None:
    run = a_run()
    await store.put(run, IfAbsent(), now=NOW)
    second = replace(run, version=2, write_id="w-first")
    await store.put(second, replacing(run), now=NOW)
    with pytest.raises(Conflict) as conflict:
        await store.put(replace(second, write_id="w-second"), replacing(run), now=NOW)
    assert conflict.value.current == second


async def test_the_same_version_of_another_submission_is_not_replaced(store: RunStore) -> None:
    run = a_run()
    await store.put(run, IfAbsent(), now=NOW)
    other = IfVersion(version=1, submission=a_submission(2))
    with pytest.raises(Conflict):
        await store.put(replace(run, version=2), other, now=NOW)


async def test_replacing_an_absent_run_conflicts_with_nothing(store: RunStore) -> None:
    run = a_run(version=2)
    with pytest.raises(Conflict) as conflict:
        await store.put(run, IfVersion(version=1, submission=run.submission), now=NOW)
    assert conflict.value.current is None


async def test_an_expired_row_reads_as_absent(store: RunStore) -> None:
    run = a_run()
    await store.put(gone(run), IfAbsent(), now=NOW)
    assert await store.get(key_of(run), now=NOW) is None
    assert await store.get_many([key_of(run)], now=NOW) == {}


async def test_a_row_is_there_until_it_expires(store: RunStore) -> None:
    run = ended(a_run(), expires_at=NOW + timedelta(seconds=10))
    await store.put(run, IfAbsent(), now=NOW)
    assert await store.get(key_of(run), now=NOW) == run
    with pytest.raises(Conflict):
        await store.put(a_run(), IfAbsent(), now=NOW)


@pytest.mark.parametrize("condition", [IfAbsent(), FirstClaim(submission=a_submission(2))])
async def test_an_expired_row_is_created_over(store: RunStore, condition: Condition) -> None:
    await store.put(gone(a_run()), IfAbsent(), now=NOW)
    fresh = a_run(submission=a_submission(2))
    await store.put(fresh, condition, now=NOW)
    assert await store.get(key_of(fresh), now=NOW) == fresh


async def test_an_expired_row_is_not_replaced(store: RunStore) -> None:
    old = gone(a_run())
    await store.put(old, IfAbsent(), now=NOW)
    with pytest.raises(Conflict) as conflict:
        await store.put(replace(old, version=old.version + 1), replacing(old), now=NOW)
    assert conflict.value.current is None


async def test_a_hundred_keys_are_read_at_once_and_missing_ones_left_out(store: RunStore) -> None:
    runs = [a_run(number) for number in range(0, 100, 2)]
    for run in runs:
        await store.put(run, IfAbsent(), now=NOW)
    keys = [RunKey(tenant="acme", run_id=an_id(number)) for number in range(100)]
    assert await store.get_many(keys, now=NOW) == {key_of(run): run for run in runs}


@pytest.mark.parametrize("backend", WITH_RECORDS, indirect=True)
async def test_a_record_of_newer_code_hides_no_other(backend: Backend, store: RunStore) -> None:
    before, newer, after = a_run(1), a_run(2), a_run(3)
    for run in (before, after):
        await store.put(run, IfAbsent(), now=NOW)
    await backend.put_damaged(store, newer)
    found = dict(await store.get_many([key_of(run) for run in (before, newer, after)], now=NOW))
    assert isinstance(found.pop(key_of(newer)), NewerSchema)
    assert found == {key_of(before): before, key_of(after): after}
    with pytest.raises(NewerSchema):
        await store.get(key_of(newer), now=NOW)
    assert key_of(newer) in {
        RunKey(tenant=k.tenant, run_id=k.run_id) for k in await store.page("acme", Bucket.ACTIVE, limit=9)
    }


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("backend", WITH_RECORDS, indirect=True)
async def test_a_damaged_record_costs_only_itself_until_an_operator_removes_it(
    backend: Backend, store: RunStore, damage: Mapping[str, Any]
) -> None:
    good, bad = a_run(1), a_run(2)
    await store.put(good, IfAbsent(), now=NOW)
    await backend.put_damaged(store, bad, damage)
    found = dict(await store.get_many([key_of(good), key_of(bad)], now=NOW))
    assert isinstance(found.pop(key_of(bad)), Unreadable)
    assert found == {key_of(good): good}
    with pytest.raises(Unreadable):
        await store.get(key_of(bad), now=NOW)
    with pytest.raises(Unreadable):
        await store.put(bad, IfAbsent(), now=NOW)
    assert not await store.remove_unreadable(key_of(good)), "it can be read: it is cancelled instead"
    assert await store.remove_unreadable(key_of(bad))
    assert not await store.remove_unreadable(key_of(bad))
    assert await store.get(key_of(bad), now=NOW) is None
    assert [key.run_id for key in await store.page("acme", Bucket.ACTIVE, limit=9)] == [good.id]
    await store.put(bad, IfAbsent(), now=NOW)


SORTS = [
    "garbage",
    "~",
    "0",
    " ",
    "1764590400000",
    "1764590400000#another",
    f"1764590400000!{an_id(2)}",
    "９" * 13,
    "é#",
]
"""What may stand in place of a row's sort key in the list index."""


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("backend", WITH_INDEX, indirect=True)
async def test_a_damaged_sort_key_costs_only_its_own_slot_in_the_list(
    backend: Backend, store: RunStore, sort: str, ascending: bool
) -> None:
    runs = [a_run(number, created_at=NOW + timedelta(seconds=number)) for number in range(5)]
    for run in runs:
        await (
            backend.put_damaged(store, run, {"ls": {"S": sort}})
            if run is runs[2]
            else store.put(run, IfAbsent(), now=NOW)
        )
    expected = [run.id for run in (runs if ascending else reversed(runs)) if run is not runs[2]]
    for limit in (1, 2, 3, 9):
        found: list[str] = []
        before: IndexKey | None = None
        while page := await store.page("acme", Bucket.ACTIVE, limit=limit, before=before, ascending=ascending):
            found += [key.run_id for key in page]
            before = IndexKey.from_json("acme", page[-1].to_json())
            assert len(found) <= len(runs)
        assert sorted(found) == sorted(run.id for run in runs)
        assert [run_id for run_id in found if run_id != runs[2].id] == expected
    assert await listed_ids(store, limit=1) == await listed_ids(store, limit=9)
    healed = replace(runs[2], version=2)
    await store.put(healed, IfVersion(version=1, submission=healed.submission), now=NOW)
    assert [key.run_id for key in await store.page("acme", Bucket.ACTIVE, limit=9)] == [
        run.id for run in reversed(runs)
    ]


async def listed_ids(store: RunStore, *, limit: int) -> list[str]:
    """Every run that the API lists, page by page."""
    cursor, found = None, []
    while True:
        shown = await listing.page(store, "acme", listing.Filters(), limit=limit, cursor=cursor, now=NOW)
        found += [run.id if isinstance(run, Run) else run.run_id for run, _ in shown.runs]
        cursor = shown.next_cursor
        if cursor is None:
            return found
        assert len(found) < 9


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("backend", WITH_INDEX, indirect=True)
async def test_a_row_that_is_damaged_all_over_is_listed_as_unreadable_and_can_be_removed(
    backend: Backend, store: RunStore, sort: str
) -> None:
    await store.put(a_run(1), IfAbsent(), now=NOW)
    await backend.put_damaged(store, a_run(2), {"ls": {"S": sort}, "b": {"B": b"garbage"}})
    shown = await listing.page(store, "acme", listing.Filters(), limit=9, cursor=None, now=NOW)
    assert {type(run) for run, _ in shown.runs} == {Run, IndexKey}
    assert await store.remove_unreadable(key_of(a_run(2)))
    assert await listed_ids(store, limit=9) == [a_run(1).id]


@pytest.mark.parametrize("number", ["-5", "1.5", "1E+30", "99999999999999999999", "-1E+40"])
@pytest.mark.parametrize("backend", WITH_INDEX, indirect=True)
async def test_a_due_time_that_is_none_keeps_nobody_from_being_found(
    backend: Backend, store: RunStore, number: str
) -> None:
    waiting = [a_run(n, status=Status.WAITING, due_at=NOW) for n in range(2)]
    await store.put(waiting[0], IfAbsent(), now=NOW)
    await backend.put_damaged(store, waiting[1], {"ds": {"N": number}})
    found = [key.run_id for key in await store.due("model", NOW, limit=9)]
    assert waiting[0].id in found
    assert (waiting[1].id in found) is (float(number) < 10)


async def test_reading_no_keys_finds_nothing(store: RunStore) -> None:
    assert await store.get_many([], now=NOW) == {}


async def test_many_big_records_are_read_at_once(store: RunStore) -> None:
    runs = [a_run(number, input=random.Random(number).randbytes(100_000).hex()) for number in range(20)]
    for run in runs:
        await store.put(run, IfAbsent(), now=NOW)
    assert await store.get_many([key_of(run) for run in runs], now=NOW) == {key_of(run): run for run in runs}


async def test_a_record_too_big_for_an_item_is_refused(store: RunStore) -> None:
    run = a_run(input=random.Random(1).randbytes(500_000).hex())
    with pytest.raises(LimitExceeded):
        await store.put(run, IfAbsent(), now=NOW)
    assert await store.get(key_of(run), now=NOW) is None


async def listed(store: RunStore, count: int, **given: object) -> list[IndexKey]:
    """Create runs a second apart (two of each second, to try the order among equals); their rows, oldest first."""
    rows = []
    for number in range(count):
        run = a_run(number, created_at=NOW + timedelta(seconds=number // 2), **given)
        await store.put(run, IfAbsent(), now=NOW)
        rows.append(index_key_of(run))
    return rows


async def test_a_listing_is_newest_first(store: RunStore) -> None:
    rows = await listed(store, 6)
    assert list(await store.page("acme", Bucket.ACTIVE, limit=10)) == rows[::-1]
    assert list(await store.page("acme", Bucket.ACTIVE, limit=10, ascending=True)) == rows


@pytest.mark.parametrize("ascending", [False, True])
async def test_pages_join_without_gap_or_double(store: RunStore, ascending: bool) -> None:
    rows = await listed(store, 7)
    seen: list[IndexKey] = []
    while page := await store.page(
        "acme", Bucket.ACTIVE, limit=2, before=seen[-1] if seen else None, ascending=ascending
    ):
        assert len(page) <= 2
        seen.extend(page)
    assert seen == (rows if ascending else rows[::-1])


async def test_a_listing_goes_on_stably_while_newer_runs_arrive(store: RunStore) -> None:
    rows = await listed(store, 4)
    first = await store.page("acme", Bucket.ACTIVE, limit=2)
    await store.put(a_run(99, created_at=NOW + timedelta(hours=1)), IfAbsent(), now=NOW)
    rest = await store.page("acme", Bucket.ACTIVE, limit=10, before=first[-1])
    assert [*first, *rest] == rows[::-1]


async def test_a_listing_goes_on_after_a_run_that_has_left_the_bucket(store: RunStore) -> None:
    rows = await listed(store, 4)
    first = await store.page("acme", Bucket.ACTIVE, limit=2)
    left = await store.get(RunKey(tenant="acme", run_id=first[-1].run_id), now=NOW)
    assert left is not None
    await store.put(ended(left), replacing(left), now=NOW)
    assert list(await store.page("acme", Bucket.ACTIVE, limit=10, before=first[-1])) == rows[1::-1]


async def test_a_listing_shows_one_tenant(store: RunStore) -> None:
    rows = await listed(store, 2)
    await listed(store, 2, tenant="other")
    assert list(await store.page("acme", Bucket.ACTIVE, limit=10, ascending=True)) == rows
    assert await store.page("acm", Bucket.ACTIVE, limit=10) == []


async def test_what_is_no_tenants_name_has_no_runs(store: RunStore) -> None:
    with pytest.raises(ValueError, match="no tenant's name"):
        await store.put(a_run(tenant="acme#x"), IfAbsent(), now=NOW)
    with pytest.raises(ValueError, match="no tenant's name"):
        await store.page("acme#active", Bucket.ACTIVE, limit=10)


@pytest.mark.parametrize("status", [Status.QUEUED, Status.RUNNING, Status.WAITING, Status.PAUSED])
async def test_a_live_run_is_in_the_active_bucket_whatever_it_does(store: RunStore, status: Status) -> None:
    run = a_run()
    await store.put(run, IfAbsent(), now=NOW)
    await store.put(replace(run, version=2, status=status), replacing(run), now=NOW)
    assert list(await store.page("acme", Bucket.ACTIVE, limit=10)) == [index_key_of(run)]


@pytest.mark.parametrize(
    ("status", "bucket"),
    [
        (Status.SUCCEEDED, Bucket.SUCCEEDED),
        (Status.FAILED, Bucket.FAILED),
        (Status.CANCELLED, Bucket.CANCELLED),
    ],
)
async def test_an_ended_run_moves_to_the_bucket_of_its_end(store: RunStore, status: Status, bucket: str) -> None:
    run = a_run()
    await store.put(run, IfAbsent(), now=NOW)
    await store.put(ended(run, status), replacing(run), now=NOW)
    found = {name: list(await store.page("acme", name, limit=10)) for name in Bucket.ALL}
    assert found == {name: [index_key_of(run)] if name == bucket else [] for name in Bucket.ALL}


async def test_a_redriven_run_is_active_again(store: RunStore) -> None:
    run = ended(a_run(), Status.FAILED, expires_at=NOW + timedelta(days=30))
    await store.put(run, IfAbsent(), now=NOW)
    again = replace(run, status=Status.WAITING, version=run.version + 1, expires_at=None, due_at=NOW)
    await store.put(again, replacing(run), now=NOW)
    assert list(await store.page("acme", Bucket.ACTIVE, limit=10)) == [index_key_of(run)]
    assert list(await store.page("acme", Bucket.FAILED, limit=10)) == []


async def test_waiting_runs_are_found_when_due_earliest_first(store: RunStore) -> None:
    delays = {1: 50, 2: 10, 3: 100, 4: 30, 5: 101}
    for number, seconds in delays.items():
        run = a_full_run(number, due_at=NOW + timedelta(seconds=seconds), tenant=f"tenant-{number}")
        await store.put(run, IfAbsent(), now=NOW)
    found = await store.due("model", NOW + timedelta(seconds=100), limit=10)
    assert [key.tenant for key in found] == ["tenant-2", "tenant-4", "tenant-1", "tenant-3"]
    assert list(await store.due("model", NOW + timedelta(seconds=100), limit=2)) == list(found)[:2]


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (3, 2)])
async def test_runs_are_listed_and_due_though_they_were_written_by_another_number_of_shards(
    backend: Backend, before: int, after: int
) -> None:
    old = backend.runs(shards=before)
    for number in range(12):
        await old.put(a_full_run(number, due_at=NOW, status=Status.WAITING), IfAbsent(), now=NOW)
    assert len(await old.due("model", NOW, limit=20)) == 12  # the sweeper asks each minute
    new = backend.runs(shards=after)
    await new.put(a_full_run(12, due_at=NOW, status=Status.WAITING), IfAbsent(), now=NOW)
    for store in (new, backend.runs(shards=before), backend.runs(shards=after)):
        assert len(await store.page("acme", Bucket.ACTIVE, limit=20)) == 13
        assert len(await store.due("model", NOW, limit=20)) == 13


async def test_only_waiting_runs_are_due(store: RunStore) -> None:
    for number, status in enumerate((Status.QUEUED, Status.RUNNING, Status.PAUSED, Status.SUCCEEDED)):
        await store.put(a_full_run(number, status=status, due_at=NOW), IfAbsent(), now=NOW)
    await store.put(a_full_run(9, status=Status.WAITING, due_at=None), IfAbsent(), now=NOW)
    assert await store.due("model", NOW + timedelta(days=1), limit=10) == []


async def test_a_run_that_is_claimed_is_no_longer_due(store: RunStore) -> None:
    run = a_full_run(due_at=NOW)
    await store.put(run, IfAbsent(), now=NOW)
    await store.put(replace(run, version=5, status=Status.RUNNING), replacing(run), now=NOW)
    assert await store.due("model", NOW + timedelta(days=1), limit=10) == []


async def test_a_later_due_time_replaces_the_earlier_one(store: RunStore) -> None:
    run = a_full_run(due_at=NOW)
    await store.put(run, IfAbsent(), now=NOW)
    await store.put(replace(run, version=5, due_at=NOW + timedelta(hours=1)), replacing(run), now=NOW)
    assert await store.due("model", NOW, limit=10) == []
    assert list(await store.due("model", NOW + timedelta(hours=1), limit=10)) == [
        DueKey(tenant="acme", run_id=run.id, due_at=NOW + timedelta(hours=1))
    ]


async def test_a_class_with_many_due_runs_hides_no_other(store: RunStore) -> None:
    for number in range(1, 4):
        await store.put(a_full_run(number, due_at=NOW), IfAbsent(), now=NOW)
    await store.put(a_full_run(9, due_at=NOW + timedelta(seconds=1), class_name="harness"), IfAbsent(), now=NOW)
    found = await store.due("harness", NOW + timedelta(minutes=1), limit=2)
    assert [key.run_id for key in found] == [an_id(9)]


# --- segments ----------------------------------------------------------------------------------


def a_segment(
    name: str,
    previous: str | None,
    first_seq: int,
    *,
    submission: str = a_submission(),
    data: Mapping[str, str] | None = None,
) -> Segment:
    entries = tuple(
        Entry(
            seq=seq, at=NOW + timedelta(seconds=seq), type=EventType.STEP_STARTED, step="only", attempt=seq, data=data
        )
        for seq in (first_seq, first_seq + 1)
    )
    state = StepState(status=StepStatus.SUCCEEDED, attempts=1, started_at=NOW, finished_at=NOW, output={"n": first_seq})
    return Segment(name=f"{submission}#{name}", previous=previous, entries=entries, steps={f"s{first_seq}": state})


async def test_the_segments_a_head_names_read_back_oldest_first(store: RunStore) -> None:
    first = a_segment("0000000001#a#00", None, 1)
    second = a_segment("0000000003#b#00", first.name, 3)
    run = a_full_run(sealed=Sealed(newest=second.name, last_seq=4, statuses="ss."))
    for segment in (second, first):
        await store.put_segment(key_of(run), segment, now=NOW)
    assert list(await store.segments(run)) == [first, second]


async def test_segments_that_no_head_names_are_left_out(store: RunStore) -> None:
    first, orphan = a_segment("0000000001#a#00", None, 1), a_segment("0000000001#b#00", None, 1)
    foreign = a_segment("0000000001#c#00", None, 1, submission=a_submission(2))
    run = a_full_run(sealed=Sealed(newest=first.name, last_seq=2))
    for segment in (first, orphan, foreign):
        await store.put_segment(key_of(run), segment, now=NOW)
    assert list(await store.segments(run)) == [first]
    assert list(await store.segments(a_full_run())) == []


@pytest.mark.parametrize("damage", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("backend", WITH_RECORDS, indirect=True)
async def test_a_damaged_segment_costs_only_its_own_run_until_an_operator_removes_it(
    backend: Backend, store: RunStore, damage: Mapping[str, Any]
) -> None:
    segments = [a_segment("0000000001#a#00", None, 1)]
    for number in range(1, 4):
        name = f"{number * 2 + 1:010d}#{chr(97 + number)}#00"
        segments.append(a_segment(name, segments[-1].name, number * 2 + 1))
    good, bad = (
        a_full_run(
            number, submission=a_submission(), sealed=Sealed(newest=segments[-1].name, last_seq=8, statuses="ssss")
        )
        for number in (1, 2)
    )
    for run in (good, bad):
        await store.put(run, IfAbsent(), now=NOW)
        for segment in segments:
            await store.put_segment(key_of(run), segment, now=NOW)
    await backend.damage_segment(store, key_of(bad), segments[1], damage)
    assert list(await store.segments(good)) == segments
    assert await store.get(key_of(bad), now=NOW) == bad, "its head can be read"
    with pytest.raises(Unreadable):
        await store.segments(bad)
    with pytest.raises(Unreadable):
        await store.sealed_entries(bad, after=0, limit=8)
    assert [entry.seq for entry in await store.sealed_entries(good, after=0, limit=8)] == list(range(1, 9))
    assert not await store.remove_unreadable(key_of(good))
    assert await store.remove_unreadable(key_of(bad))
    assert await store.get(key_of(bad), now=NOW) is None


@pytest.mark.parametrize("damage", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("backend", WITH_RECORDS, indirect=True)
async def test_a_damaged_segment_that_no_head_names_costs_nothing(
    backend: Backend, store: RunStore, damage: Mapping[str, Any]
) -> None:
    first, orphan = a_segment("0000000001#b#00", None, 1), a_segment("0000000001#a#00", None, 1)
    run = a_full_run(sealed=Sealed(newest=first.name, last_seq=2, statuses="s.."))
    await store.put(run, IfAbsent(), now=NOW)
    for segment in (first, orphan):
        await store.put_segment(key_of(run), segment, now=NOW)
    await backend.damage_segment(store, key_of(run), orphan, damage)
    assert list(await store.segments(run)) == [first]
    assert [entry.seq for entry in await store.sealed_entries(run, after=0, limit=2)] == [1, 2]
    assert not await store.remove_unreadable(key_of(run))


@pytest.mark.parametrize("backend", WITH_RECORDS, indirect=True)
async def test_a_record_whose_segment_is_gone_can_be_removed(backend: Backend, store: RunStore) -> None:
    run = a_full_run(sealed=Sealed(newest=f"{a_submission()}#0000000001#a#00", last_seq=2))
    await store.put(run, IfAbsent(), now=NOW)
    assert await store.remove_unreadable(key_of(run))


async def test_a_missing_segment_is_said_to_be_missing(store: RunStore) -> None:
    second = a_segment("0000000003#b#00", f"{a_submission()}#gone", 3)
    run = a_full_run(sealed=Sealed(newest=second.name, last_seq=4))
    await store.put_segment(key_of(run), second, now=NOW)
    with pytest.raises(NotFound):
        await store.segments(run)


def a_sealed_record(rng: random.Random, puts: int) -> tuple[Run, list[Segment], list[Segment]]:
    """A record sealed away so often, its segments, and orphans of puts that came to nothing beside them."""
    kept: list[Segment] = []
    orphans: list[Segment] = []
    newest, seq = None, 1
    for number in range(puts):
        for attempt in range(rng.choice((0, 0, 1, 2)) + 1):
            previous, first = newest, seq
            made: list[Segment] = []
            for part in range(rng.choice((1, 1, 3))):
                name = f"{seq:010d}#{'w' if attempt == 0 else 'o'}{number}{attempt}#{part:02d}"
                of_steps = part > 0 and rng.random() < 0.5
                one = a_segment(name, previous, first, data={"by": name})
                made.append(replace(one, entries=() if of_steps else one.entries))
                previous, first = one.name, first + len(made[-1].entries)
            if attempt:
                orphans += made
            else:
                kept += made
                after, next_seq = made[-1].name, first
        newest, seq = after, next_seq
    run = a_full_run(sealed=Sealed(newest=newest, last_seq=seq - 1))
    return run, kept, orphans


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_page_of_sealed_entries_is_the_same_as_reading_all(store: RunStore, seed: int) -> None:
    rng = random.Random(seed)
    run, kept, orphans = a_sealed_record(rng, puts=12)
    foreign = a_segment("0000000001#w00#00", None, 1, submission=a_submission(2))
    for segment in (*kept, *orphans, foreign):
        await store.put_segment(key_of(run), segment, now=NOW)
    everything = [entry for segment in await store.segments(run) for entry in segment.entries]
    assert len(everything) == run.sealed.last_seq
    for after in {0, 1, run.sealed.last_seq - 1, run.sealed.last_seq, *rng.sample(range(run.sealed.last_seq), 8)}:
        limit = rng.choice((1, 2, 5, 100))
        found = await store.sealed_entries(run, after=after, limit=limit)
        assert list(found) == everything[after : after + limit]


async def test_a_page_of_entries_that_are_missing_is_said_to_be_missing(store: RunStore) -> None:
    run, kept, _ = a_sealed_record(random.Random(1), puts=4)
    for segment in kept[1:]:
        await store.put_segment(key_of(run), segment, now=NOW)
    with pytest.raises(NotFound):
        await store.sealed_entries(run, after=0, limit=10)


async def test_a_put_tells_the_size_of_the_record(store: RunStore) -> None:
    small, big = a_run(1), a_run(2, input={"text": random.Random(0).randbytes(4_000).hex()})
    sizes = [await store.put(run, IfAbsent(), now=NOW) for run in (small, big)]
    # A store in memory that keeps records as they are has no items to measure.
    assert sizes == [0, 0] or (200 < sizes[0] < 1_024 < sizes[1] < 9_000)
