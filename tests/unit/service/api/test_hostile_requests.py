"""Strangers at the door: foreign and broken tokens, tricks with headers, paths and JSON, on every call there is."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fanfold.engine.ports import RunKey
from fanfold.service.api.routes import CALLS, Call
from tests.support.builders import a_token
from tests.support.clock import START
from tests.support.gateway import Gateway
from tests.support.http import TINY, Http, Reply, memory_services
from tests.support.memory import memory_services as recording_services

SECRETS = {"acme": "a" * 43, "other": "o" * 43}
OWNED = tuple(call for call in CALLS if "{id}" in call.path)
"""The calls about one run."""
NAMED = tuple(call for call in CALLS if call.scope is not None)
"""The calls that need a token."""


def bearer(tenant: str, number: int, **changed: str) -> str:
    return f"Bearer ff_{changed.get('id', f'{number:016x}')}_{changed.get('secret', SECRETS[tenant])}"


class Door:
    """The API behind its authorizer, spoken to in bytes."""

    def __init__(self) -> None:
        self.services = memory_services()
        self.gateway = Gateway(self.services)

    def __call__(
        self, method: str, path: str, body: bytes = b"", *, query: str = "", token: str | None = None, **headers: str
    ) -> Reply:
        given: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path.encode("utf-8", "surrogatepass").decode("latin-1"),
            "QUERY_STRING": query,
            "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": headers.pop("content_type", "application/json"),
            "wsgi.input": io.BytesIO(body),
        }
        if token is not None:
            given["HTTP_AUTHORIZATION"] = token
        given |= {f"HTTP_{name.upper()}": value for name, value in headers.items()}
        status, told = "", []

        def start(line: str, pairs: list[tuple[str, str]]) -> None:
            nonlocal status, told
            status, told = line, pairs

        text = b"".join(self.gateway(given, start)).decode()
        answer = Reply(status=int(status[:3]), headers={n.lower(): v for n, v in told}, text=text)
        if answer.status >= 400:
            assert answer.headers["content-type"] == "application/problem+json", answer
            assert answer.json["status"] == answer.status
            assert "Traceback" not in answer.text
        assert answer.status != 500, answer
        return answer


@pytest.fixture
def door() -> Iterator[Door]:
    door = Door()
    http = Http(services=door.services)

    async def prepare() -> None:
        for number, (tenant, secret) in enumerate(SECRETS.items(), start=1):
            digest = hashlib.sha256(secret.encode()).hexdigest()
            await door.services.tokens.put(a_token(id=f"{number:016x}", sha256=digest, tenant=tenant))
        await http("PUT", "/v1/workflows/tiny", TINY)

    asyncio.run(prepare())
    yield door
    door.gateway.close()


def path_of(call: Call, *, run_id: str) -> str:
    """A call's path for one run; every other parameter is something."""
    return call.path.replace("{id}", run_id).replace("{name}", "tiny").replace("{ticket}", "t")


def body_of(call: Call) -> bytes:
    """A body that each call could take."""
    if call.name == "forkRun":
        return b'{"from_step":"only"}'
    if call.document:
        return json.dumps(TINY).encode()
    return b'{"workflow":"tiny"}' if call.body is not None else b"{}"


# --- tenants ----------------------------------------------------------------------------------


@pytest.mark.parametrize("call", OWNED, ids=lambda call: call.name)
def test_another_tenants_run_is_as_unknown_as_one_that_never_was(door: Door, call: Call) -> None:
    acme, other = bearer("acme", 1), bearer("other", 2)
    run_id = door("POST", "/v1/runs", b'{"workflow":"tiny","input":{"secret":"of acme"}}', token=acme).json["id"]
    before = asyncio.run(door.services.runs.get(RunKey(tenant="acme", run_id=run_id), now=START))
    foreign = door(call.method, path_of(call, run_id=run_id), body_of(call), token=other)
    never = door(call.method, path_of(call, run_id="r" + "0" * 25), body_of(call), token=other)
    assert (foreign.status, never.status) == (404, 404)
    assert foreign.text.replace(run_id, "?") == never.text.replace("r" + "0" * 25, "?")
    assert asyncio.run(door.services.runs.get(RunKey(tenant="acme", run_id=run_id), now=START)) == before
    assert "acme" not in foreign.text


@pytest.mark.parametrize("call", NAMED, ids=lambda call: call.name)
def test_nothing_a_tenant_has_shows_in_any_answer_to_another(door: Door, call: Call) -> None:
    acme, other = bearer("acme", 1), bearer("other", 2)
    document = {"name": "tiny", "steps": {"only": {"task": "core.echo", "input": "hush-hush"}}}
    door("PUT", "/v1/workflows/tiny", json.dumps(document).encode(), token=acme)
    body = b'{"workflow":"tiny","input":"hush-hush","tags":{"hush-hush":"1"}}'
    key = {"idempotency_key": "the-same-key"}
    run_id = door("POST", "/v1/runs", body, token=acme, **key).json["id"]
    answer = door(call.method, path_of(call, run_id=run_id), body_of(call), token=other, **key)
    assert "hush-hush" not in answer.text
    if "{id}" not in call.path:
        assert run_id not in answer.text


def test_the_same_key_of_two_tenants_names_two_runs(door: Door) -> None:
    door("PUT", "/v1/workflows/tiny", json.dumps(TINY).encode(), token=bearer("other", 2))
    made = [
        door("POST", "/v1/runs", b'{"workflow":"tiny"}', token=token, idempotency_key="k")
        for token in (bearer("acme", 1), bearer("other", 2))
    ]
    assert [answer.status for answer in made] == [202, 202]
    assert made[0].json["id"] != made[1].json["id"]


def test_a_cursor_of_another_tenant_is_refused(door: Door) -> None:
    for _ in range(2):
        door("POST", "/v1/runs", b'{"workflow":"tiny"}', token=bearer("acme", 1))
    cursor = door("GET", "/v1/runs", query="limit=1", token=bearer("acme", 1)).json["next_cursor"]
    assert door("GET", "/v1/runs", query=f"cursor={cursor}", token=bearer("other", 2)).status == 400


# --- tokens -----------------------------------------------------------------------------------

BROKEN_TOKENS = [
    None,
    "",
    "Bearer",
    "Bearer ",
    "Basic YWNtZTphY21l",
    "Bearer null",
    bearer("acme", 1, secret="a" * 42),
    bearer("acme", 1, secret="a" * 44),
    bearer("acme", 1, secret="b" * 43),
    bearer("acme", 1, id="0" * 15 + "2"),
    bearer("acme", 1, id="0" * 15 + "9"),
    bearer("acme", 1, id="../#tokens/../01"),
    bearer("acme", 1) + "\n",
    bearer("acme", 1).replace("ff_", "FF_"),
    f"{bearer('acme', 1)}, {bearer('other', 2)}",
    "Bearer " + "x" * 100_000,
    "Bearer ff_\x00_\x00",
    "Bearer ff_" + "٠" * 15 + "1_" + "a" * 43,
]


@pytest.mark.parametrize("call", NAMED, ids=lambda call: call.name)
def test_no_call_answers_a_token_that_is_none(door: Door, call: Call) -> None:
    for token in BROKEN_TOKENS:
        if token is not None and token.strip() == bearer("acme", 1):
            continue  # white space around a header's value is no part of it
        answer = door(call.method, path_of(call, run_id="r1"), body_of(call), token=token)
        assert (answer.status, answer.json["type"]) == (401, "unauthorized"), token


@pytest.mark.parametrize("call", NAMED, ids=lambda call: call.name)
def test_no_call_answers_a_token_that_was_revoked_or_has_expired(door: Door, call: Call) -> None:
    digest = hashlib.sha256(SECRETS["acme"].encode()).hexdigest()
    revoked = a_token(id=f"{3:016x}", sha256=digest, revoked_at=START - timedelta(days=1))
    expired = a_token(id=f"{4:016x}", sha256=digest, expires_at=START)

    async def put() -> None:
        for token in (revoked, expired, replace(expired, id=f"{5:016x}", revoked_at=START)):
            await door.services.tokens.put(token)

    asyncio.run(put())
    for number, word in ((3, "revoked"), (4, "expired"), (5, "revoked")):
        answer = door(call.method, path_of(call, run_id="r1"), body_of(call), token=bearer("acme", number))
        assert answer.status == 401
        assert word in answer.json["detail"]


def test_a_caller_can_not_say_who_he_is(door: Door) -> None:
    forged = {"x_tenant": "acme", "tenant": "acme", "x_amzn_oidc_data": "acme", "verdict": "ok"}
    assert door("GET", "/v1/runs", **forged).status == 401
    run_id = door("POST", "/v1/runs", b'{"workflow":"tiny"}', token=bearer("acme", 1)).json["id"]
    assert door("GET", f"/v1/runs/{run_id}", token=bearer("other", 2), query="tenant=acme", **forged).status == 404


# --- paths, queries, headers ------------------------------------------------------------------

PATHS = [
    "/v1/runs/%2e%2e%2fother",
    "/v1/runs/../runs",
    "/v1/runs/..",
    "/v1/runs//events",
    "/v1/runs/a#0",
    "/v1/runs/#tokens",
    "/v1/runs/w",
    "/v1/runs/%00",
    "/v1/runs/\x00",
    "/v1/runs/\ud800",
    "/v1/runs/" + "a" * 20_000,
    "/v1/runs/a%0d%0aset-cookie:x=1",
    "/v1/workflows/%23marks",
    "/v1/workflows/\u202e",
    "/V1/RUNS",
    "//v1/runs",
    "/v1/runs/?",
    "/v1/runs;x=1",
    "",
    "/",
    "*",
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: repr(path)[:40])
def test_a_path_that_means_nothing_is_a_clean_404(door: Door, path: str) -> None:
    answer = door("GET", path, token=bearer("acme", 1))
    assert answer.status in (404, 405)
    assert len(answer.text) < 2_000
    assert "set-cookie" not in answer.headers


QUERIES = [
    "limit=0",
    "limit=-1",
    "limit=1e3",
    "limit=" + "9" * 5_000,
    "limit=²",
    "cursor=",
    "cursor=%00",
    "cursor=" + "A" * 10_000,
    "cursor=é",
    "status=nothing",
    "status=,,,",
    "tag=%ed%a0%80",
    "tag=" + "x" * 5_000,
    "tag=a:b:c=d",
    "workflow=%00",
    "limit=1&limit=2&limit=x",
    "&&&=&=1&%",
    "%zz=%zz",
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query[:20])
def test_a_query_is_understood_or_refused(door: Door, query: str) -> None:
    assert door("GET", "/v1/runs", query=query, token=bearer("acme", 1)).status in (200, 400, 422)


@pytest.mark.parametrize("wait", ["nan", "inf", "-1", "1e400", "", "0x10", "١", "9" * 400])
def test_nobody_waits_for_a_number_that_is_none(door: Door, wait: str) -> None:
    run_id = door("POST", "/v1/runs", b'{"workflow":"tiny"}', token=bearer("acme", 1)).json["id"]
    assert door("GET", f"/v1/runs/{run_id}", query=f"wait={wait}", token=bearer("acme", 1)).status == 422


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "a b", "é", "\x00", "a\r\nb", "x" * 100_000])
def test_a_key_is_255_visible_characters_at_most(door: Door, key: str) -> None:
    answer = door("POST", "/v1/runs", b'{"workflow":"tiny"}', token=bearer("acme", 1), idempotency_key=key)
    assert (answer.status, answer.json["parameter"]) == (422, "Idempotency-Key")


def test_a_key_may_have_every_visible_character(door: Door) -> None:
    for key in ("x" * 255, "".join(map(chr, range(0x21, 0x7F)))):
        assert (
            door("POST", "/v1/runs", b'{"workflow":"tiny"}', token=bearer("acme", 1), idempotency_key=key).status == 202
        )


# --- JSON -------------------------------------------------------------------------------------

JSON: dict[str, tuple[bytes, int]] = {
    "duplicate key": (b'{"workflow":"tiny","workflow":"tiny"}', 400),
    "duplicate key below": (b'{"workflow":"tiny","input":{"a":{"b":1,"b":2}}}', 400),
    "duplicate key escaped": (b'{"workflow":"tiny","input":{"a":1,"\\u0061":2}}', 400),
    "deep lists": (b'{"workflow":"tiny","input":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    "deep objects": (b'{"workflow":"tiny","input":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}", 400),
    "a little too deep": (b'{"workflow":"tiny","input":' + b"[" * 101 + b"]" * 101 + b"}", 400),
    "many digits": (b'{"workflow":"tiny","input":' + b"9" * 100_000 + b"}", 400),
    "a huge float": (b'{"workflow":"tiny","input":1e999}', 400),
    "NaN": (b'{"workflow":"tiny","input":NaN}', 400),
    "Infinity": (b'{"workflow":"tiny","input":[-Infinity]}', 400),
    "not UTF-8": (b'{"workflow":"tiny","input":"\xff\xfe"}', 400),
    "a surrogate in bytes": (b'{"workflow":"tiny","input":"\xed\xa0\x80"}', 400),
    "UTF-16": ('{"workflow":"tiny"}'.encode("utf-16"), 400),
    "a mark of byte order": (b'\xef\xbb\xbf{"workflow":"tiny"}', 400),
    "a control character": (b'{"workflow":"tiny","input":"\x01"}', 400),
    "nothing": (b"", 400),
    "something behind": (b'{"workflow":"tiny"} {}', 400),
    "a comma too many": (b'{"workflow":"tiny",}', 400),
    "single quotes": (b"{'workflow':'tiny'}", 400),
    "too much": (b'{"workflow":"tiny","input":"' + b"x" * 5_000_000 + b'"}', 413),
    "a list": (b"[]", 422),
    "a field too many": (b'{"workflow":"tiny","__proto__":{}}', 422),
    "a name that is none": (b'{"workflow":"tiny\\u0000"}', 422),
    "a lane that is none": (b'{"workflow":"tiny","lane":"\\ud800"}', 422),
    "a tag's name": (b'{"workflow":"tiny","tags":{"\\u0000":"x"}}', 422),
    "many tags": (json.dumps({"workflow": "tiny", "tags": {f"t{n}": "" for n in range(21)}}).encode(), 422),
    "a huge delay": (b'{"workflow":"tiny","delay":' + b"9" * 400 + b"}", 422),
    "no delay": (b'{"workflow":"tiny","delay":true}', 422),
    "a version that is none": (b'{"workflow":"tiny","version":"sha256:\\u0000"}', 404),
}


@pytest.mark.parametrize("name", JSON)
def test_a_body_that_leaves_open_what_it_means_is_refused_and_takes_no_slot(door: Door, name: str) -> None:
    body, status = JSON[name]
    assert door("POST", "/v1/runs", body, token=bearer("acme", 1)).status == status
    assert asyncio.run(door.services.slots.load("model")).depth == 0


WITH_BODY = [call for call in NAMED if call.body is not None or call.document or call.payload]


@pytest.mark.parametrize("call", WITH_BODY, ids=lambda call: call.name)
@pytest.mark.parametrize("version", ["2.0", "1.0"])
@pytest.mark.parametrize("media_type", ["application/json", "application/yaml"])
async def test_bytes_that_are_not_utf8_are_refused_though_the_gateway_replaced_them(
    call: Call, version: str, media_type: str
) -> None:
    http = Http(services=memory_services(), version=version)
    await http("PUT", "/v1/workflows/tiny", TINY)
    run_id = (await http("POST", "/v1/runs", {"workflow": "tiny"})).json["id"]
    sent = b'{"workflow":"tiny","name":"tiny","from_step":"\xc3"}'
    text = sent.decode("utf-8", "replace")
    headers = {"content-type": media_type, "content-length": str(len(sent))}
    path = path_of(call, run_id=run_id)
    refused = await http(call.method, path, text, headers=headers)
    assert (refused.status, "UTF-8" in refused.json["detail"]) == (400, True)
    meant = await http(call.method, path, text, headers={**headers, "content-length": str(len(text.encode()))})
    assert "UTF-8" not in meant.text


ODD = {
    "lone surrogates": b'"\\ud800 \\udfff"',
    "surrogates as a key": b'{"\\ud800":1}',
    "NUL": b'"a\\u0000b"',
    "a big integer": b"123456789012345678901234567890",
    "a small float": b"1e-320",
    "an empty key": b'{"":{"":""}}',
    "keys of objects' parts": b'{"__proto__":1,"constructor":2,"$ref":"x"}',
    "almost too deep": b"[" * 90 + b"]" * 90,
    "an expression": b'"${input}"',
}


@pytest.mark.parametrize("name", ODD)
def test_odd_json_is_taken_kept_and_given_back_as_it_is(name: str) -> None:
    services = recording_services(Door().services.clock)
    http = Http(services=services)

    async def there_and_back() -> None:
        await http("PUT", "/v1/workflows/tiny", TINY)
        made = await http("POST", "/v1/runs", '{"workflow":"tiny","input":' + ODD[name].decode() + "}")
        assert made.status == 202
        shown = await http("GET", f"/v1/runs/{made.json['id']}")
        assert shown.json["input"] == json.loads(ODD[name])
        assert (await http("GET", "/v1/runs")).status == 200

    asyncio.run(there_and_back())
