"""The clients' smaller calls, the same in both: what they ask, and what they refuse before or after asking."""

from __future__ import annotations

import inspect
import json
from typing import Any

import httpx
import pytest

import fanfold
from fanfold import AsyncClient, Client, NotFanfold
from tests.unit.client.test_client import ACCEPTED, Service, a_run, ok, problem

SUMMARY = {"name": "tiny", "version": "sha256:0", "created_at": "…"}


def test_a_priority_stands_instead_of_a_lane() -> None:
    service = Service(ok(ACCEPTED, 202))
    with service.client() as client:
        client.submit("tiny", priority=9, delay="30s", version="sha256:0")
    body = {"workflow": "tiny", "priority": 9, "delay": "30s", "version": "sha256:0"}
    assert json.loads(service.requests[0].content) == body


def test_a_listing_goes_on_after_a_cursor_that_was_kept() -> None:
    service = Service(ok({"runs": [a_run(id="a")], "next_cursor": None}))
    with service.client() as client:
        assert [run["id"] for run in client.runs(cursor="kept", workflow="tiny")] == ["a"]
    assert dict(service.requests[0].url.params) == {"workflow": "tiny", "cursor": "kept", "limit": "50"}


async def test_workflows_are_listed_and_shown_by_both_clients() -> None:
    bodies = [
        {"workflows": [SUMMARY], "next_cursor": "n"},
        {"workflows": [SUMMARY], "next_cursor": None},
        {**SUMMARY, "document": {}, "versions": []},
    ]
    service = Service(*(ok(body) for body in bodies * 2))
    with service.client() as client:
        assert [workflow["name"] for workflow in client.workflows()] == ["tiny", "tiny"]
        assert client.workflow("tiny", version="sha256:0")["document"] == {}
    async with service.async_client() as there:
        assert [workflow["name"] async for workflow in there.workflows()] == ["tiny", "tiny"]
        assert (await there.workflow("tiny"))["document"] == {}
    assert dict(service.requests[1].url.params) == {"limit": "50", "cursor": "n"}
    assert str(service.requests[2].url).endswith("/v1/workflows/tiny?version=sha256%3A0")


@pytest.mark.parametrize(("status", "body"), [(404, "nothing"), (200, "[]"), (200, "{}"), (204, "")])
async def test_what_no_fanfold_answers_is_told_by_both_clients_and_not_repeated(status: int, body: str) -> None:
    service = Service(lambda _: httpx.Response(status, text=body))
    with service.client() as client, pytest.raises(NotFanfold, match=r"http://service\.test/_aws/.*API's address"):
        client.get("r1")
    async with service.async_client() as there:
        with pytest.raises(NotFanfold):
            await there.get("r1")
    assert len(service.requests) == 2


@pytest.mark.parametrize("url", ["", "garbage", "//host", "ftp://host", "http://", "http://h:x", "https://h/?a=1"])
def test_what_can_be_no_address_is_refused_when_the_client_is_made(url: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match="address"):
            kind(url)


@pytest.mark.parametrize("token", ["a b", "a\nb", "tökén"])
def test_what_can_be_no_token_is_refused_when_the_client_is_made(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        Client("https://example.org", token)


def test_a_problem_is_the_object_it_came_as() -> None:
    service = Service(problem(422, errors=[{"pointer": "/a", "detail": "b"}]))
    with service.client() as client, pytest.raises(fanfold.Invalid) as caught:
        client.queues()
    assert caught.value.content() == {
        "type": "some-slug",
        "title": "A title",
        "status": 422,
        "detail": "What happened.",
        "errors": [{"pointer": "/a", "detail": "b"}],
    }


def test_both_clients_have_the_same_calls_with_their_words_and_signatures() -> None:
    here, there = (
        {name: method for name, method in vars(kind).items() if not name.startswith("_") and name != "close"}
        for kind in (Client, AsyncClient)
    )
    assert set(here) == set(there) >= {"submit", "submit_many", "wait", "events", "fork"}
    for name, method in here.items():
        assert method.__doc__, name
        assert method.__doc__ == there[name].__doc__
        assert inspect.signature(method).parameters == inspect.signature(there[name]).parameters
    assert str(inspect.signature(Client.wait)) == "(self, run_id: 'str', *, timeout: 'float | None' = None) -> 'Run'"
    assert str(inspect.signature(AsyncClient.workflows)).endswith("-> 'AsyncIterator[WorkflowSummary]'")
    assert inspect.iscoroutinefunction(AsyncClient.wait)


def test_the_package_offers_what_it_lists_and_nothing_else() -> None:
    names: Any = {name: getattr(fanfold, name) for name in fanfold.__all__}
    assert names["AsyncClient"] is AsyncClient
    with pytest.raises(AttributeError, match="Clint"):
        fanfold.Clint  # noqa: B018  # to be asked for is all it is there for
