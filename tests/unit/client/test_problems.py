"""The client's exceptions are values: they cross to other processes and are copied, and tell the same there."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from fanfold.client.answers import pause_before_repeat
from fanfold.client.errors import NotFanfold, NotReachable, Problem, problem

STATUSES = (400, 401, 403, 404, 409, 413, 418, 422, 429, 500, 503)
BODY = {"type": "slug", "title": "No", "detail": "why", "errors": [{"pointer": "/a", "detail": "b"}], "estimate": 3}
WAYS: tuple[Callable[[BaseException], BaseException], ...] = (
    lambda error: pickle.loads(pickle.dumps(error)),
    copy.copy,
    copy.deepcopy,
)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("status", STATUSES)
def test_a_problem_is_the_same_after_pickling_and_copying(status: int, way: Callable[[Problem], Problem]) -> None:
    error = problem(status, BODY, retry_after_seconds=7)
    error.add_note("while submitting")
    again = way(error)
    assert type(again) is type(error)
    assert again.content() == error.content()
    assert str(again) == str(error)
    assert getattr(again, "retry_after_seconds", None) == getattr(error, "retry_after_seconds", None)
    assert again.__notes__ == ["while submitting"]


def _kinds(kind: type[BaseException]) -> set[type[BaseException]]:
    return {kind}.union(*(_kinds(below) for below in kind.__subclasses__()))


def test_every_kind_of_problem_is_tried_above() -> None:
    assert {type(problem(status, BODY)) for status in STATUSES} == _kinds(Problem)


@pytest.mark.parametrize("error", [NotReachable("no answer"), NotFanfold("not ours")])
def test_the_other_errors_are_the_same_after_pickling(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))


@pytest.mark.parametrize("attempt", [1_024, 1_026, 10**9])
def test_however_often_it_was_tried_the_pause_is_the_longest(attempt: int) -> None:
    pause = pause_before_repeat(attempt, retry_after_seconds=None, spent_seconds=0, retry_for_seconds=1e9, chance=0.5)
    assert pause == 5.0
