"""Filters and cursors of `GET /v1/runs`: what is misspelled is refused, naming what there is."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from fanfold.engine.ports import IfAbsent
from fanfold.engine.record.run import Status
from fanfold.service.api import cursors
from fanfold.service.api.listing import Filters
from tests.support.builders import a_run, an_id
from tests.support.clock import START
from tests.support.http import Http, memory_services


@pytest.fixture
async def http() -> Http:
    http = Http(services=memory_services())
    for number, tags in enumerate(({"team": "a,b", "x": ""}, {"team": "a=b:c"}, {"team": "b"})):
        await http.services.runs.put(a_run(number, tags=tags), IfAbsent(), now=START)
    return http


@pytest.mark.parametrize(
    ("query", "parameter", "named"),
    [
        ("status=done", "status", [status.value for status in Status]),
        ("status=queued,done", "status", ["succeeded"]),
        ("state=failed", "state", ["limit", "cursor", "status", "workflow", "tag"]),
        ("Status=failed", "Status", ["status"]),
        ("tag=%3Dvalue", "tag", ["name, name:value and name=value"]),
        ("tag=:value", "tag", ["name, name:value and name=value"]),
        ("tag=two words", "tag", ["letters, digits"]),
        ("tag=" + "x" * 65, "tag", ["64"]),
        ("tag=x:" + "y" * 257, "tag", ["256"]),
        ("limit=201", "limit", ["200"]),
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused_and_the_right_ones_are_named(
    http: Http, query: str, parameter: str, named: list[str]
) -> None:
    reply = await http("GET", f"/v1/runs?{query}")
    assert (reply.status, reply.json["type"], reply.json["parameter"]) == (422, "invalid-parameter", parameter)
    assert reply.json["detail"].startswith(f"{parameter}: ")
    assert "Value error" not in reply.json["detail"]
    assert all(word in reply.json["detail"] for word in named)


async def test_other_calls_pass_over_a_parameter_nobody_knows(http: Http) -> None:
    assert (await http("GET", f"/v1/runs/{an_id(0)}?utm_source=mail")).status == 200
    assert (await http("GET", "/v1/workflows?utm_source=mail")).status == 200


@pytest.mark.parametrize("version", ["2.0", "1.0"])
@pytest.mark.parametrize(
    ("tags", "found"),
    [
        (["team"], [2, 1, 0]),
        (["team:a,b"], [0]),
        (["team=a=b:c"], [1]),
        (["team:a"], []),
        (["x:"], [0]),
        (["x=", "team:a,b"], [0]),
        (["x", "team:b"], []),
    ],
)
async def test_a_tags_value_may_have_any_character(http: Http, version: str, tags: list[str], found: list[int]) -> None:
    there = Http(services=http.services, version=version)
    reply = await there("GET", "/v1/runs?" + "&".join(f"tag={quote(tag)}" for tag in tags))
    assert reply.status == 200, reply.text
    assert [run["id"] for run in reply.json["runs"]] == [an_id(number) for number in found]


@pytest.mark.parametrize("cursor", ["x", "x" * 2_001, "%00", "=", "eyJhIjoxfQ", "ÄÖ"])
async def test_a_cursor_of_nobodys_is_400_however_long(http: Http, cursor: str) -> None:
    for path in ("/v1/runs", "/v1/workflows"):
        reply = await http("GET", f"{path}?cursor={cursor}")
        assert (reply.status, reply.json["type"]) == (400, "invalid-cursor")


async def test_the_cursor_of_another_listing_or_filter_is_400(http: Http) -> None:
    mine = (await http("GET", "/v1/runs?limit=1&tag=team")).json["next_cursor"]
    assert (await http("GET", f"/v1/runs?limit=2&tag=team&cursor={mine}")).status == 200
    for other in (f"/v1/runs?cursor={mine}", f"/v1/runs?tag=x&cursor={mine}", f"/v1/workflows?cursor={mine}"):
        assert (await http("GET", other)).json["type"] == "invalid-cursor"


@pytest.mark.parametrize("slot", ["1.x#0", "1." + "x" * 2_000, "1.", "1", "x.r1", "9" * 30 + ".r1"])
async def test_a_forged_cursor_that_names_what_can_be_no_run_is_400_and_no_read(http: Http, slot: str) -> None:
    # Its check is no secret: what it names may be no key that the table knows.
    forged = cursors.encode(slot, f"runs\0acme\0{Filters().key()}")
    assert (await http("GET", f"/v1/runs?cursor={forged}")).json["type"] == "invalid-cursor"


@pytest.mark.parametrize("name", ["A b", "x" * 2_000, ""])
async def test_a_forged_cursor_that_names_what_can_be_no_workflow_is_400(http: Http, name: str) -> None:
    forged = cursors.encode(name, "workflows\0acme")
    assert (await http("GET", f"/v1/workflows?cursor={forged}")).json["type"] == "invalid-cursor"
