"""The API and lanes: `lane` or `priority`, what a token may use, how long a run will wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fanfold.engine.admission.estimates import estimate
from fanfold.engine.admission.lanes import LaneLimit
from fanfold.service.bearer_tokens import mint
from fanfold.service.functions.authorizer import verdict
from fanfold.service.settings import ClassSettings, Settings
from tests.support.clock import START
from tests.support.http import TINY, Http, memory_services

THREE = ("high", "normal", "low")
LONG = {"name": "long", "class": "harness", "steps": {"only": {"task": "core.echo"}}}


@pytest.fixture
async def http() -> Http:
    classes = {"model": ClassSettings(lanes=THREE), "harness": ClassSettings(lanes=("first", "second"))}
    http = Http(services=memory_services(Settings(classes=classes)))
    for document in (TINY, LONG):
        assert (await http("PUT", f"/v1/workflows/{document['name']}", document)).status == 201
    return http


async def lane(http: Http, workflow: str = "tiny", *, bound: dict[str, str] | None = None, **asked: Any) -> str:
    reply = await http("POST", "/v1/runs", {"workflow": workflow, **asked}, bound=bound or {})
    assert reply.status == 202
    return str((await http("GET", f"/v1/runs/{reply.json['id']}")).json["lane"])


async def test_a_run_waits_in_the_lane_it_names_or_its_priority_means(http: Http) -> None:
    assert await lane(http) == "normal"
    assert await lane(http, lane="low") == "low"
    assert [await lane(http, priority=p) for p in (9, 5, 0)] == ["high", "normal", "low"]
    assert [await lane(http, "long", priority=p) for p in (9, 0)] == ["first", "second"]
    queues = {queue["class"]: queue for queue in (await http("GET", "/v1/queues")).json["queues"]}
    assert queues["model"]["lanes"] == {"high": {"queued": 1}, "normal": {"queued": 2}, "low": {"queued": 2}}
    assert queues["harness"]["queued"] == 2


@pytest.mark.parametrize(
    ("asked", "pointer", "says"),
    [
        ({"lane": "fast"}, "/lane", "there are: high, normal, low"),
        ({"workflow": "long", "lane": "high"}, "/lane", "there are: first, second"),
        ({"priority": 10}, "/priority", "less than or equal to 9"),
        ({"priority": -1}, "/priority", "greater than or equal to 0"),
        ({"priority": "5"}, "/priority", "integer"),
        ({"priority": True}, "/priority", "integer"),
        ({"priority": 5, "lane": "low"}, "/priority", "a lane or a priority, not both"),
    ],
)
async def test_what_is_no_lane_or_priority_is_422_and_says_what_is(
    http: Http, asked: dict[str, Any], pointer: str, says: str
) -> None:
    reply = await http("POST", "/v1/runs", {"workflow": "tiny", **asked})
    assert reply.status == 422
    (error,) = reply.json["errors"]
    assert error["pointer"] == pointer
    assert says in error["detail"]
    assert (await http("GET", "/v1/queues")).json["queues"][0]["queued"] == 0


async def test_an_unknown_class_is_422_with_those_there_are(http: Http) -> None:
    reply = await http("PUT", "/v1/workflows/tiny", {**TINY, "class": "huge"})
    (error,) = reply.json["errors"]
    assert (reply.status, error["pointer"]) == (422, "/class")
    assert "`model`, `harness`" in error["detail"]


async def test_a_token_that_is_bound_is_denied_better_lanes_alone_and_in_batches_and_nothing_is_queued(
    http: Http,
) -> None:
    bound = {"max_lane": "normal"}
    for asked, pointer in (({"lane": "high"}, "/lane"), ({"priority": 9}, "/priority")):
        reply = await http("POST", "/v1/runs", {"workflow": "tiny", **asked}, bound=bound)
        assert (reply.status, reply.json["type"]) == (403, "forbidden")
        assert reply.json["errors"] == [
            {"pointer": pointer, "detail": "of class 'model' the token may use the lanes normal, low"}
        ]
    runs = [{"workflow": "tiny", "lane": name} for name in THREE]
    reply = await http("POST", "/v1/runs/batch", {"runs": runs}, bound=bound)
    assert [result["status"] for result in reply.json["results"]] == [403, 202, 202]
    assert (await http("GET", "/v1/queues")).json["queues"][0]["queued"] == 2


async def test_a_bound_tokens_runs_take_the_best_lane_it_may_and_so_do_its_forks(http: Http) -> None:
    assert await lane(http, bound={"max_priority": "2"}) == "low"
    assert await lane(http, bound={"max_priority": "9"}) == "normal"
    source = (await http("POST", "/v1/runs", {"workflow": "tiny", "lane": "high"})).json["id"]
    for bound, expected in (({}, "high"), ({"max_lane": "normal"}, "normal")):
        forked = await http("POST", f"/v1/runs/{source}/fork", {"from_step": "only"}, bound=bound)
        assert (await http("GET", f"/v1/runs/{forked.json['id']}")).json["lane"] == expected


async def test_what_a_token_was_made_with_is_what_the_authorizer_tells() -> None:
    services = memory_services()
    drawn = {8: bytes(8), 32: bytes(32)}
    scopes = frozenset({"submit"})
    made = {"tenant": "acme", "owner": "Ada", "scopes": scopes, "now": START, "draw": drawn.__getitem__}
    text, token = mint(**made, bound=LaneLimit(max_lane="normal", max_priority=7))
    await services.tokens.put(token)
    event = {"headers": {"authorization": f"Bearer {text}"}}
    told = await verdict(event, services.tokens, now=START + timedelta(hours=1))
    assert (told["max_lane"], told["max_priority"]) == ("normal", "7")
    for wrong in (LaneLimit(max_priority=10), LaneLimit(max_priority=-1), LaneLimit(max_lane="")):
        with pytest.raises(ValueError, match="a token's"):
            mint(**made, bound=wrong)


async def test_an_accepted_run_and_a_refused_one_are_told_how_long_a_run_waits() -> None:
    settings = Settings(classes={"model": ClassSettings(max_queue_depth=3)})
    services = memory_services(settings)
    http = Http(services=services)
    await http("PUT", "/v1/workflows/tiny", TINY)
    first = await http("POST", "/v1/runs", {"workflow": "tiny"})
    assert first.json["estimate"] == {"ahead": 0, "drain_per_second": None, "starts_in_seconds": 0.0}
    second = await http("POST", "/v1/runs", {"workflow": "tiny"})
    assert second.json["estimate"] == {"ahead": 1, "drain_per_second": None, "starts_in_seconds": None}

    taken = await services.slots.reserve("model", now=START)
    await services.slots.sample("model", now=START - timedelta(seconds=20), oldest_accepted_at=None)
    await services.slots.give_back("model", taken.slot)
    third = await http("POST", "/v1/runs", {"workflow": "tiny"})
    assert third.json["estimate"] == {"ahead": 2, "drain_per_second": 0.05, "starts_in_seconds": 40.0}
    refused = await http("POST", "/v1/runs", {"workflow": "tiny"})
    assert refused.status == 429
    assert refused.json["estimate"] == {"ahead": 3, "drain_per_second": 0.05, "starts_in_seconds": 60.0}
    batch = await http("POST", "/v1/runs/batch", {"runs": [{"workflow": "tiny"}]})
    assert batch.json["results"][0]["problem"]["estimate"] == refused.json["estimate"]


def test_an_estimate_is_no_earlier_than_the_delay_and_unknown_while_nothing_drains() -> None:
    assert estimate(0, None, delay_seconds=30).starts_in_seconds == 30
    assert estimate(10, 2.0, delay_seconds=1).starts_in_seconds == 5
    assert estimate(10, 0.0).starts_in_seconds is None
