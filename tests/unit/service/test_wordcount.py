"""The example of a wide map: it counts what is there, wherever the counting is done."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from fanfold.engine.errors import Fail
from fanfold.engine.payload import Json
from fanfold.service.settings import Settings
from fanfold.tasks import core
from functions.tasks import text
from tests.support.virtual import virtually
from tests.support.world import World, with_fan_out

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("where", ["stepfunctions", "inline"])
@virtually
async def test_the_ten_commonest_words_of_the_bundled_text(where: str) -> None:
    world = World(settings=with_fan_out() if where == "stepfunctions" else Settings())
    document = yaml.safe_load((EXAMPLES / "wordcount.yaml").read_text())
    given = json.loads((EXAMPLES / "wordcount.json").read_text())
    run = await world.play(document, given)

    assert [e.data["via"] for e in run.journal if e.type == "map.started" and e.data] == [where]
    counts = Counter(re.findall(r"[a-z]+(?:['-][a-z]+)*", " ".join(given["chunks"]).lower()))
    expected = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:10]
    assert run.output["words"] == dict(expected)
    assert run.output["chunks"] == len(given["chunks"])


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        ("", {}),
        ("To be, or not to be", {"to": 2, "be": 2, "or": 1, "not": 1}),
        ("Ödön's E-mail 42", {"ödön's": 1, "e-mail": 1}),
    ],
)
async def test_words_are_letters_in_lower_case(said: str, counted: Json) -> None:
    assert await text.words(said) == counted


async def test_a_fold_adds_up_key_by_key_the_largest_first() -> None:
    values: Any = [{"b": 1, "a": 1}, None, {"b": 2.5, "c": 1}]
    assert list((await core.fold({"values": values})).items()) == [("b", 3.5), ("a", 1), ("c", 1)]
    assert await core.fold({"values": values, "top": 1}) == {"b": 3.5}
    assert await core.fold({"values": []}) == {}


@pytest.mark.parametrize("given", [None, {}, {"values": {}}, {"values": [3]}, {"values": [{"a": "b"}]}])
async def test_what_can_not_be_folded_is_told(given: Json) -> None:
    with pytest.raises(Fail):
        await core.fold(given)


async def test_what_is_no_text_has_no_words() -> None:
    with pytest.raises(Fail):
        await text.words(3)
