"""Answers as they are written: big values as they lie in the bucket, whatever is in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.engine.values import dump
from functions.runtime.api.outgoing import Verbatim, to_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=4), JSON)
def test_values_that_are_written_verbatim_stand_where_they_belong(values: list[Any], plain: Any) -> None:
    answer = {
        "first": plain,
        "values": {str(n): Verbatim(dump(value)) for n, value in enumerate(values)},
        "last": plain,
    }
    expected = {"first": plain, "values": {str(n): value for n, value in enumerate(values)}, "last": plain}
    written = to_json(answer)
    assert json.loads(written) == expected
    assert written.isascii()


def test_a_value_twice_is_written_twice() -> None:
    one = Verbatim(b'{"a":1}')
    assert to_json([one, "b", one]) == b'[{"a":1},"b",{"a":1}]'


@pytest.mark.parametrize("text", ["verbatim", '"verbatim', "", "\x00", '","'])
def test_no_text_is_taken_for_the_place_of_a_value(text: str) -> None:
    assert json.loads(to_json([text, Verbatim(b"1"), text])) == [text, 1, text]
