"""Tenants' names, and the keys that begin with them: no tenant's key is, or begins with, another's."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanfold.adapters.aws import catalog, map_records, tokens
from fanfold.adapters.aws.run_items import PK, SK, head_key, list_partition, run_key
from fanfold.adapters.aws.segments import segment_key, to_segment_item
from fanfold.adapters.message_codec import decode, encode
from fanfold.engine.errors import Unreadable
from fanfold.engine.language.document_check import STEP_NAME, WORKFLOW_NAME
from fanfold.engine.language.maps import MapRecord
from fanfold.engine.ports import RUN_ID, Bucket, MapKey, Registered, RunKey
from fanfold.engine.record.segments import Segment, segment_name
from fanfold.engine.tenant import TENANT
from fanfold.service.api import submit
from fanfold.service.api.access import caller_of
from fanfold.service.api.problems import Refused
from fanfold.service.bearer_tokens import SCOPES, mint
from fanfold.service.functions.authorizer import verdict
from fanfold.service.payloads import payload_key
from tests.support.builders import a_token, a_wake, an_envelope
from tests.support.clock import START
from tests.support.examples import examples

NO_TENANTS = [
    *(
        "",
        "alpha#x",
        "alpha/x",
        "#tokens",
        "..",
        ".",
        "-a",
        "_a",
        "a b",
        " a",
        "a\n",
        "a\0",
        "é",
        "\ud800",
        "ａ",
        "a" * 65,
    ),
    *("alpha%23x", "a,b", "a:b", "a@b", "a\x85", "a\x1b[31m"),
]


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["acme", "acme-industries", "a", "7", "ACME_2.eu", "a" * 64])
def test_a_tenant_has_a_plain_name(name: str) -> None:
    _, token = mint(tenant=name, owner="Ada", scopes=SCOPES, now=START, draw=bytes)
    assert token.tenant == name
    assert caller_of({"verdict": "ok", "tenant": name}).tenant == name


@pytest.mark.parametrize("name", NO_TENANTS)
def test_what_is_no_tenants_name_is_refused_wherever_a_key_would_be_made_of_it(name: str) -> None:
    makers: list[Callable[[], object]] = [
        lambda: mint(tenant=name, owner="Ada", scopes=SCOPES, now=START, draw=bytes),
        lambda: a_token(tenant=name),
        lambda: head_key(name, "r1"),
        lambda: list_partition(name, Bucket.ACTIVE, 0),
        lambda: catalog._partition(name),
        lambda: map_records._partition(MapKey(tenant=name, run_id="r1", submission="s", step="a")),
        lambda: payload_key(name, "r1", "s", "input"),
        lambda: to_segment_item(
            RunKey(tenant=name, run_id="r1"), Segment(name="s#1#w#0", previous=None), written_at=START
        ),
    ]
    for make in makers:
        with pytest.raises(ValueError, match="is no tenant's name"):
            make()
    with pytest.raises(Refused) as refused:
        caller_of({"verdict": "ok", "tenant": name, "scopes": "read"})
    assert refused.value.problem.status == 401


@pytest.mark.parametrize("name", NO_TENANTS)
async def test_a_stored_token_of_such_a_tenant_opens_nothing_and_hides_no_other(name: str) -> None:
    item = {**tokens._to_item(a_token()), "t": {"S": name}}
    with pytest.raises(Unreadable, match="is no tenant's name"):
        tokens._from_item(item)
    text, _ = mint(tenant="acme", owner="Ada", scopes=SCOPES, now=START, draw=bytes)

    class Stored:
        async def get(self, token_id: str) -> object:
            return tokens._from_item(item)

    event = {"headers": {"authorization": f"Bearer {text}"}}
    assert await verdict(event, Stored(), now=START + timedelta(hours=1)) == {"verdict": "unknown"}  # type: ignore[arg-type]


@pytest.mark.parametrize("message", [an_envelope(), a_wake()], ids=["envelope", "wake"])
@pytest.mark.parametrize("name", ["alpha#x", "", None, 7])
def test_a_message_for_what_is_no_tenant_is_no_message(message: Any, name: object) -> None:
    body = encode(message)
    assert decode(body).message == message
    assert decode(json.dumps({**json.loads(body), "tenant": name})).message is None


# --- keys -------------------------------------------------------------------------------------

SEPARATING = "abw0159._-"
TENANTS = st.text(SEPARATING, min_size=1, max_size=6).filter(TENANT.fullmatch)
RUNS = st.text("abrw0-_", min_size=1, max_size=6).filter(RUN_ID.fullmatch)
TOKENS = st.text("abw0-_", min_size=1, max_size=6)
STEPS = st.text("abinput0_-", min_size=1, max_size=6).filter(STEP_NAME.fullmatch)
WORKFLOWS = st.text("abw0-", min_size=1, max_size=6).filter(WORKFLOW_NAME.fullmatch)
KEYS = st.text("ab#/\\0! ", min_size=1, max_size=6)
NUMBERS = st.integers(0, 12)


def registered(name: str, version: str) -> Registered:
    return Registered(name=name, version=f"sha256:{version}", document={}, created_at=START)


def primary(item: dict[str, Any]) -> tuple[str, str]:
    return item[PK]["S"], item[SK]["S"]


def of_map(tenant: str, run_id: str, submission: str, step: str, try_number: int, first: int) -> tuple[str, str]:
    key = MapKey(tenant=tenant, run_id=run_id, submission=submission, step=step)
    record = MapRecord(try_number=try_number, first=first, plan="p", results=())
    return primary(map_records.to_item(key, record, expires_at=START))


def of_segment(tenant: str, run_id: str, submission: str, first: int, write_id: str, part: int) -> tuple[str, str]:
    segment = Segment(name=segment_name(submission, first, write_id, part), previous=None)
    return primary(to_segment_item(RunKey(tenant=tenant, run_id=run_id), segment, written_at=START))


IN_THE_TABLE: dict[str, tuple[Callable[..., tuple[str, str]], st.SearchStrategy[Any]]] = {
    "head": (lambda tenant, run: primary(head_key(tenant, run)), st.tuples(TENANTS, RUNS)),
    "segment": (of_segment, st.tuples(TENANTS, RUNS, TOKENS, NUMBERS, TOKENS, NUMBERS)),
    "map": (of_map, st.tuples(TENANTS, RUNS, TOKENS, STEPS, NUMBERS, NUMBERS)),
    "current": (
        lambda tenant, name: primary(catalog._to_item(tenant, f"c#{name}", registered(name, "0"))),
        st.tuples(TENANTS, WORKFLOWS),
    ),
    "version": (
        lambda tenant, name, version: (catalog._partition(tenant), f"v#{name}#sha256:{version}"),
        st.tuples(TENANTS, WORKFLOWS, st.text("0af", min_size=1, max_size=3)),
    ),
    "token": (lambda name: primary(tokens._key(tokens._TOKENS, name)), st.tuples(TOKENS)),
    "tenant": (lambda name: primary(tokens._key(tokens._TENANTS, name)), st.tuples(TENANTS)),
}
PARTS = st.one_of(*(st.tuples(st.just(kind), parts) for kind, (_, parts) in IN_THE_TABLE.items()))


@settings(**examples(150))
@given(st.lists(PARTS, min_size=2, max_size=30))
def test_no_two_things_have_the_same_key_in_the_table(things: list[tuple[str, tuple[Any, ...]]]) -> None:
    named = {IN_THE_TABLE[kind][0](*parts): (kind, parts) for kind, parts in things}
    assert len(named) == len(set(things))
    for (partition, _), (kind, parts) in named.items():
        if kind not in ("token", "tenant"):
            assert partition.split("#")[0] == parts[0]
    for (partition, sort), (kind, parts) in named.items():
        if kind == "head":
            key = run_key({PK: {"S": partition}, SK: {"S": sort}})
            assert (key.tenant, key.run_id) == parts


@settings(**examples(150))
@given(st.lists(st.tuples(TENANTS, st.sampled_from(Bucket.ALL), NUMBERS), min_size=2, max_size=20))
def test_no_two_lists_share_a_partition(lists: list[tuple[str, str, int]]) -> None:
    assert len({list_partition(*parts) for parts in lists}) == len(set(lists))


@settings(**examples(150))
@given(st.lists(st.tuples(TENANTS, RUNS, TOKENS), min_size=2, max_size=20, unique=True), STEPS)
def test_no_payloads_key_begins_with_anothers_folder(owners: list[tuple[str, str, str]], step: str) -> None:
    folders = [payload_key(*owner, "") for owner in owners]
    for one in folders:
        assert not [other for other in folders if other is not one and (other + step).startswith(one)]
    tenants = {owner[0] for owner in owners}
    for tenant in tenants:
        inside = [owner for owner in owners if payload_key(*owner, step).startswith(f"{tenant}/")]
        assert {owner[0] for owner in inside} == {tenant}


@settings(**examples(150))
@given(st.lists(st.tuples(TENANTS, KEYS), min_size=2, max_size=20))
def test_no_two_idempotency_keys_name_the_same_run(asked: list[tuple[str, str]]) -> None:
    made = {
        submit.run_key(submit.Submission(tenant=tenant, workflow="w", request_hash="0", key=key))
        for tenant, key in asked
    }
    assert len(made) == len({(tenant, key) for tenant, key in asked})


@settings(**examples(150))
@given(TOKENS, NUMBERS, TOKENS, NUMBERS, TOKENS)
def test_the_segments_of_one_submission_are_found_without_anothers(
    submission: str, first: int, write_id: str, part: int, other: str
) -> None:
    sort = of_segment("a", "r", submission, first, write_id, part)[1]
    assert sort.startswith(segment_key(submission, first)) is True
    assert sort.startswith(segment_key(other, first)) is (other == submission)
