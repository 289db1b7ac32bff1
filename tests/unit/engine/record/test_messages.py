"""Messages on the wire: nothing is lost, and a body of any kind does no harm."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from fanfold.adapters.message_codec import Opened, decode, encode, fairness_group
from fanfold.engine.record.messages import Message
from tests.support.builders import a_wake, an_envelope
from tests.support.records import messages

TEXTS = ("tenant", "run", "submission", "class", "workflow", "version", "lane", "hash")


@settings(max_examples=60, deadline=None)
@given(message=messages())
def test_every_message_arrives_as_it_was_sent(message: Message) -> None:
    body = encode(message)
    assert body.isascii()
    assert repr(decode(body).message) == repr(message)


@pytest.mark.parametrize("tenant", ["acme", "t" * 64, "a.B_c-1"])
def test_a_tenant_is_its_own_fairness_group(tenant: str) -> None:
    assert fairness_group(tenant) == tenant


def test_a_message_of_newer_code_is_told_from_a_broken_one() -> None:
    body = json.dumps({**json.loads(encode(a_wake())), "z": 2, "k": "something else"})
    assert decode(body) == Opened(message=None, newer=True)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "not JSON",
        "null",
        "[]",
        "7",
        '"text"',
        "{}",
        '{"z": "1"}',
        '{"z": 1}',
        '{"z": 1, "k": "run"}',
        '{"z": 1, "k": "bell"}',
        "[" * 100_000,
        json.dumps({**json.loads(encode(an_envelope())), "accepted": "yesterday"}),
        json.dumps({**json.loads(encode(an_envelope())), "accepted": 10**30}),
        json.dumps({**json.loads(encode(an_envelope())), "slot": [1]}),
        json.dumps({**json.loads(encode(an_envelope())), "input": 7}),
        *(json.dumps({**json.loads(encode(an_envelope())), name: 7}) for name in TEXTS),
        *(json.dumps({**json.loads(encode(a_wake(map_step="each"))), name: []}) for name in (*TEXTS[:4], "map")),
        json.dumps({**json.loads(encode(an_envelope())), "tags": ["a"]}),
        json.dumps({**json.loads(encode(an_envelope())), "tags": {"a": {}}}),
        json.dumps({**json.loads(encode(an_envelope())), "slot": ["0", 1]}),
        json.dumps({**json.loads(encode(an_envelope())), "input": [1, 2]}),
        json.dumps({**json.loads(encode(an_envelope())), "outages": "many"}),
        json.dumps({"executionArn": "arn", "input": json.dumps({"tenant": "acme", "run": 1, "submission": 2})}),
    ],
)
def test_a_body_that_is_no_message_is_read_as_none(body: str) -> None:
    assert decode(body) == Opened(message=None)
