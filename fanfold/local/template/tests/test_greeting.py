"""Tasks are functions, and are called as such."""

from __future__ import annotations

import asyncio

import pytest
from functions.tasks.greeting import compose

from fanfold import Fail


def test_a_greeting_names_who_is_greeted() -> None:
    assert asyncio.run(compose({"name": "Ada"}, None)) == "Hello, Ada!"  # type: ignore[arg-type]  # it asks for nothing


def test_a_greeting_without_a_name_fails_for_good() -> None:
    with pytest.raises(Fail, match="needs a name"):
        asyncio.run(compose({}, None))  # type: ignore[arg-type]  # it asks for nothing
