"""The rules of maps: splitting, names, tolerance, what records add up to."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanfold.engine.language.map_step import Tolerance
from fanfold.engine.language.maps import (
    Batch,
    ItemError,
    ItemResult,
    MapRecord,
    batch_size,
    batches_json,
    digest,
    execution_name,
    fold,
    missing,
    plan_of,
    split,
)
from fanfold.engine.payload import BlobRef, dump

PLAN = "0123456789abcdef"


def success(index: int, output: object = None) -> ItemResult:
    return ItemResult(index=index, output=output)


def failure(index: int) -> ItemResult:
    return ItemResult(index=index, error=ItemError(index=index, type="Boom", message="it broke"))


def a_record(*results: ItemResult, try_number: int = 1, plan: str = PLAN) -> MapRecord:
    return MapRecord(try_number=try_number, first=results[0].index, plan=plan, results=results)


@given(st.sets(st.integers(0, 300)), st.integers(1, 40))
def test_batches_hold_every_index_once_in_order_and_none_too_many(indexes: set[int], size: int) -> None:
    batches = split(sorted(indexes), size)
    assert [i for batch in batches for i in range(batch.first, batch.end)] == sorted(indexes)
    assert all(0 < batch.end - batch.first <= size for batch in batches)


def test_a_gap_begins_a_batch() -> None:
    assert split([0, 1, 2, 5, 6], 10) == (Batch(first=0, end=3), Batch(first=5, end=7))


def test_the_list_of_batches_says_from_and_to() -> None:
    assert json.loads(batches_json(split(range(5), 3))) == [{"from": 0, "to": 3}, {"from": 3, "to": 5}]


@given(st.integers(1, 1_000), st.integers(1, 10_000), st.integers(1, 50))
def test_a_batch_never_works_on_more_items_at_once_than_the_map_may(at_once: int, items: int, largest: int) -> None:
    size = batch_size(at_once, items, largest)
    assert 1 <= size <= largest
    assert size * max(1, at_once // size) <= max(at_once, 1)


@pytest.mark.parametrize(
    ("tolerance", "failed", "borne"),
    [
        (Tolerance(), 0, True),
        (Tolerance(), 1, False),
        (Tolerance(count=2), 2, True),
        (Tolerance(count=2), 3, False),
        (Tolerance(percent=5), 5, True),
        (Tolerance(percent=5), 6, False),
        (Tolerance(percent=100), 100, True),
    ],
)
def test_tolerance_is_over_items(tolerance: Tolerance, failed: int, borne: bool) -> None:
    assert tolerance.bears(failed, 100) is borne


def test_records_fold_in_item_order_and_an_item_without_one_has_failed() -> None:
    folded = fold(4, [a_record(success(2, "c")), a_record(success(0, "a"), failure(1))], plan=PLAN, try_number=1)
    assert [result.output for result in folded.results] == ["a", None, "c", None]
    assert [(error.index, error.type) for error in folded.errors] == [(1, "Boom"), (3, "no_result")]
    assert folded.failed == 2


def test_a_later_try_goes_on_from_the_successes_and_forgets_the_failures_before() -> None:
    first = a_record(success(0, "old"), failure(1), success(2, "old"))
    assert missing(4, [first], PLAN) == [1, 3]
    folded = fold(4, [first, a_record(success(1, "new"), try_number=2)], plan=PLAN, try_number=2)
    assert [result.output for result in folded.results] == ["old", "new", "old", None]
    assert folded.errors[0].type == "no_result"


def test_results_of_other_items_count_for_nothing() -> None:
    other = a_record(success(0, "of another plan"), plan="f" * 16)
    assert missing(1, [other], PLAN) == [0]
    assert fold(1, [other], plan=PLAN, try_number=1).failed == 1


def test_a_plan_has_the_same_digest_wherever_it_lies() -> None:
    plan = plan_of([1, 2], {"input": {"a": 1}})
    data = dump(plan)
    ref = BlobRef(key="k", bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    assert digest(plan) == digest(ref)
    assert digest(plan) != digest(plan_of([2, 1], {"input": {"a": 1}}))


RUN, SUBMISSION = "r" * 26, "s" * 16


@given(st.from_regex(r"[a-z][a-z0-9_-]{0,62}", fullmatch=True), st.integers(1, 999))
def test_an_executions_name_is_one_step_functions_takes(step: str, try_number: int) -> None:
    name = execution_name(RUN, SUBMISSION, step, try_number)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name)
    assert name.startswith(RUN)
    assert name.endswith(f"-{try_number}-{SUBMISSION}")


def test_steps_that_differ_only_at_their_ends_have_executions_of_their_own() -> None:
    one, other = ("x" * 60 + end for end in ("a", "b"))
    assert execution_name(RUN, SUBMISSION, one, 1) != execution_name(RUN, SUBMISSION, other, 1)
    assert "-files-3-" in execution_name(RUN, SUBMISSION, "files", 3)
