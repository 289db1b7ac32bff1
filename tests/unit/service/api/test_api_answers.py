"""Answers as they are written: big values as they lie in the bucket, and none that Lambda would not hand over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanfold.engine.payload import dump
from fanfold.engine.ports import IfAbsent
from fanfold.engine.record.run import StepState, StepStatus
from fanfold.service.api.serialization import Verbatim, to_json
from tests.support.builders import a_run
from tests.support.http import Http, memory_services

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
def test_no_text_is_taken_for_the_slot_of_a_value(text: str) -> None:
    assert json.loads(to_json([text, Verbatim(b"1"), text])) == [text, 1, text]


# --- how much Lambda hands over ---------------------------------------------------------------

LAMBDA_BYTES = 6_291_556
"""The longest answer of a function, as Lambda's own refusal says it."""
HOSTILE = {"letters": "a", "quotes": '"', "backslashes": "\\", "controls": "\x01", "accents": "é", "emoji": "😀"}


def handed_over(result: dict[str, Any]) -> int:
    """The bytes of a function's answer as the Python runtime writes it."""
    return len(json.dumps(result).encode())


async def shown(text: str, size: int, version: str) -> tuple[dict[str, Any], Http, str]:
    """The proxy answer that shows a run whose output is about so long as JSON."""
    http = Http(services=memory_services(), version=version)
    data = dump(text * (size // (len(dump(text)) - 2)))
    steps = {"s1": StepState(status=StepStatus.SUCCEEDED, output=await http.services.blobs.put("acme/big/1", data))}
    run = a_run(steps=steps)
    await http.services.runs.put(run, IfAbsent(), now=http.services.clock.now())
    result = await http.app.answer(http.event("GET", f"/v1/runs/{run.id}?inline=true"), None)
    return result, http, data.decode()


@pytest.mark.parametrize("version", ["2.0", "1.0"])
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("size", [2_900_000, 3_100_000, 4_200_000, 4_990_000])
async def test_an_answer_is_handed_over_whole_or_lies_in_the_bucket_whatever_is_in_it(
    kind: str, size: int, version: str
) -> None:
    """An answer is a text within JSON for Lambda: each quote and backslash in it counts twice."""
    result, http, data = await shown(HOSTILE[kind], size, version)
    assert not result["isBase64Encoded"]
    assert handed_over(result) <= LAMBDA_BYTES
    if result["statusCode"] == 200:
        assert f'"output":{data}' in result["body"]
        return
    assert result["statusCode"] == 303
    headers = {**result.get("headers", {}), **result.get("multiValueHeaders", {})}
    (location,) = [headers["Location"]] if isinstance(headers["Location"], str) else headers["Location"]
    stored = http.services.blobs.read(location.removeprefix("memory:///").partition("?")[0])  # type: ignore[attr-defined]
    assert f'"output":{data}' in stored.decode()
    assert 2 * len(data) > 5_900_000, "it would have fitted, whatever is in it"


async def test_what_fits_is_not_stored() -> None:
    for kind, size in (("letters", 4_990_000), ("accents", 4_990_000), ("quotes", 2_900_000)):
        assert (await shown(HOSTILE[kind], size, "2.0"))[0]["statusCode"] == 200
    assert (await shown(HOSTILE["letters"], 5_000_000, "2.0"))[0]["statusCode"] == 303


async def test_the_documentation_is_handed_over() -> None:
    http = Http(services=memory_services())
    for path in ("/docs", "/openapi.json"):
        assert handed_over(await http.app.answer(http.event("GET", path), None)) <= LAMBDA_BYTES
