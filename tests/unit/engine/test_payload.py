"""What is written as JSON is JSON: nothing changes on the way, whatever size it has."""

from __future__ import annotations

import tracemalloc
from collections import OrderedDict
from typing import Any

import pytest

from fanfold.engine.payload import dump


def within_itself(times: int) -> list[Any]:
    value: list[Any] = []
    value.extend([value] * times)
    return value


@pytest.mark.parametrize("key", [1, None, True, 1.5, ("a",)])
@pytest.mark.parametrize("before", [0, 10_000])
def test_a_key_that_is_no_text_is_refused_wherever_it_stands(key: Any, before: int) -> None:
    found = {"a": [({"b": {key: 1}},)]}
    for value in ([{}] * before + [found], [found] + [[1]] * before, OrderedDict(a=found)):
        with pytest.raises(TypeError, match="key must be a string"):
            dump(value)


@pytest.mark.parametrize("times", [1, 2, 1_000_000])
def test_a_value_within_itself_is_refused_at_once(times: int) -> None:
    with pytest.raises(ValueError, match="contains itself"):
        dump(within_itself(times))


def test_looking_at_a_value_of_many_parts_makes_nothing_for_each() -> None:
    many: list[Any] = [{} for _ in range(200_000)]
    tracemalloc.start()
    try:
        assert len(dump(many)) == 600_001
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The text itself, some copies of it, and its pieces.
    assert peak < 8_000_000
