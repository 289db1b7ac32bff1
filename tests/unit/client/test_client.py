"""The clients against a service that is a function: what they ask, repeat, and make of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import httpx
import pytest

from fanfold import (
    AsyncClient,
    Client,
    Invalid,
    NotFanfold,
    NotFound,
    NotReachable,
    Refused,
    ServiceFailure,
    StateConflict,
)
from fanfold.client.answers import pause_before_repeat, seconds_of
from fanfold.client.results import BatchResult, Run

Answer = httpx.Response | Exception
URL = "http://service.test/_aws/execute-api/abc/$default"


class Service:
    """Answers with what it was given, one after the other (the last one for ever), and remembers the requests."""

    def __init__(self, *answers: Answer | Callable[[httpx.Request], Answer]) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        answer = answer(request) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, *, retry_for_seconds: float = 30.0, token: str | None = "ff_token") -> Client:
        transport = httpx.MockTransport(self)
        return Client(URL, token, retry_for_seconds=retry_for_seconds, transport=transport, sleep=self.slept.append)

    def async_client(self, *, retry_for_seconds: float = 30.0) -> AsyncClient:
        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        transport = httpx.MockTransport(self)
        return AsyncClient(URL, "ff_token", retry_for_seconds=retry_for_seconds, transport=transport, sleep=sleep)


def ok(body: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=body)


def problem(status: int, *, retry_after: str | None = None, **facts: Any) -> httpx.Response:
    headers = {"retry-after": retry_after} if retry_after else {}
    body = {"type": "some-slug", "title": "A title", "status": status, "detail": "What happened.", **facts}
    return httpx.Response(status, json=body, headers={"content-type": "application/problem+json", **headers})


def a_run(status: str = "succeeded", **facts: Any) -> Run:
    run = {"id": "r1", "status": status, "reason": None, "error": None, "steps": {}, "output": None}
    return cast(Run, {**run, **facts})  # only what the client looks at


ACCEPTED = {"id": "r1", "status": "queued", "workflow": "tiny", "version": "sha256:0", "created_at": "…", "links": {}}


def an_event(seq: int, type: str = "step.started") -> dict[str, Any]:
    return {"seq": seq, "at": "2026-11-30T00:00:00.000Z", "type": type}


def test_a_submission_carries_the_token_a_key_of_its_own_and_only_what_was_given() -> None:
    service = Service(ok(ACCEPTED, 202))
    with service.client() as client:
        assert client.submit("tiny", {"x": 1}, tags={"a": "b"}) == ACCEPTED
    (request,) = service.requests
    assert str(request.url) == f"{URL}/v1/runs"
    assert request.headers["authorization"] == "Bearer ff_token"
    assert len(request.headers["idempotency-key"]) == 32
    assert json.loads(request.content) == {"workflow": "tiny", "input": {"x": 1}, "tags": {"a": "b"}}


def test_a_repeated_submission_is_the_same_submission() -> None:
    service = Service(httpx.ReadTimeout("gone"), problem(503), ok(ACCEPTED, 202))
    with service.client() as client:
        client.submit("tiny")
    assert len({request.headers["idempotency-key"] for request in service.requests}) == 1
    assert len(service.requests) == 3


def test_a_key_of_the_callers_is_used_as_it_is() -> None:
    service = Service(ok(ACCEPTED, 202))
    with service.client() as client:
        client.submit("tiny", key="order-7")
    assert service.requests[0].headers["idempotency-key"] == "order-7"


def results(*statuses: int, **problem: Any) -> httpx.Response:
    refused = {"type": "queue-full", "title": "Full", "detail": "No place.", **problem}
    return ok(
        {"results": [{"status": s, **({"run": ACCEPTED} if s < 300 else {"problem": refused})} for s in statuses]}
    )


def statuses(told: list[BatchResult]) -> list[int]:
    return [result["status"] for result in told]


RUNS = [{"workflow": "tiny", "input": number} for number in range(3)]


def test_a_batch_is_one_call_under_one_key_and_its_results_come_in_order() -> None:
    service = Service(results(202, 404, 202))
    with service.client() as client:
        assert statuses(client.submit_many(RUNS, key="nightly")) == [202, 404, 202]
    (request,) = service.requests
    assert (request.url.path[-14:], request.headers["idempotency-key"]) == ("/v1/runs/batch", "nightly")
    assert json.loads(request.content) == {"runs": RUNS}


def test_more_than_a_hundred_runs_go_in_several_calls_each_with_a_key_of_its_own() -> None:
    service = Service(results(*[202] * 100), results(*[202] * 100), results(202))
    with service.client() as client:
        assert statuses(client.submit_many(({"workflow": "tiny"} for _ in range(201)), key="k")) == [202] * 201
    assert [request.headers["idempotency-key"] for request in service.requests] == ["k", "k/100", "k/200"]
    assert [len(json.loads(request.content)["runs"]) for request in service.requests] == [100, 100, 1]


def test_a_batch_of_which_some_were_refused_for_load_is_repeated_as_it_was() -> None:
    service = Service(results(202, 429, 422, retry_after=3), results(200, 202, 422))
    with service.client() as client:
        # What was accepted first stays told as that, though the repeat says it is a replay.
        assert statuses(client.submit_many(RUNS)) == [202, 202, 422]
    first, second = service.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.content == second.content
    assert 3 <= service.slept[0] <= 3.1


def test_a_batch_is_told_as_it_is_when_the_retry_time_is_over() -> None:
    service = Service(results(202, 429, 503, retry_after=60))
    with service.client(retry_for_seconds=5) as client:
        assert statuses(client.submit_many(RUNS)) == [202, 429, 503]
    assert (len(service.requests), service.slept) == (1, [])


def test_no_runs_are_no_call() -> None:
    service = Service(results())
    with service.client() as client:
        assert client.submit_many([]) == []
    assert service.requests == []


async def test_the_asyncio_client_submits_batches_alike() -> None:
    service = Service(results(202, 503, 202), results(200, 202, 200))
    async with service.async_client() as client:
        assert statuses(await client.submit_many(RUNS)) == [202, 202, 202]
    assert len(service.requests) == 2


def test_a_refusal_is_repeated_after_the_time_the_service_names() -> None:
    service = Service(problem(429, retry_after="3"), ok(ACCEPTED, 202))
    with service.client() as client:
        client.submit("tiny")
    assert 3 <= service.slept[0] <= 3.1


def test_a_refusal_longer_than_the_retry_time_is_raised_at_once() -> None:
    service = Service(problem(429, retry_after="60", title="Full", type="queue-full"))
    with service.client(retry_for_seconds=5) as client, pytest.raises(Refused) as refused:
        client.submit("tiny")
    assert repr(refused.value.retry_after_seconds) == "60"  # a whole number, as it was sent
    assert json.dumps(refused.value.content()["retry_after"]) == "60"
    assert refused.value.type == "queue-full"
    assert service.slept == []


def gateways_own(_: httpx.Request) -> httpx.Response:
    return httpx.Response(500, json={"message": "Internal Server Error"})


async def test_a_500_that_is_not_the_services_own_is_repeated_under_the_same_key_by_both_clients() -> None:
    # An HTTP API answers so when a function was killed, or its authorizer could not read the table.
    service = Service(gateways_own, ok(ACCEPTED, 202))
    with service.client() as client:
        client.submit("tiny")
    other = Service(gateways_own, ok(ACCEPTED, 202))
    async with other.async_client() as asyncio_client:
        await asyncio_client.submit("tiny")
    for asked in (service.requests, other.requests):
        first, second = (request.headers["idempotency-key"] for request in asked)
        assert first == second


def test_a_500_that_the_service_states_is_raised_at_once() -> None:
    service = Service(problem(500))
    with service.client() as client, pytest.raises(ServiceFailure):
        client.get("r1")
    assert len(service.requests) == 1


def test_a_gateway_that_goes_on_failing_is_told_when_the_retry_time_is_over() -> None:
    service = Service(gateways_own)
    with service.client(retry_for_seconds=0) as client, pytest.raises(ServiceFailure, match="Internal Server Error"):
        client.get("r1")


def test_events_go_on_where_they_were_after_a_gateway_that_failed() -> None:
    service = Service(
        ok({"events": [an_event(1)], "last_seq": 1, "end": False}),
        gateways_own,
        problem(503),
        ok({"events": [an_event(2, "run.succeeded")], "last_seq": 2, "end": True}),
    )
    with service.client() as client:
        assert [event["seq"] for event in client.events("r1")] == [1, 2]


@pytest.mark.parametrize("key", ["schlüssel", "a b", "a\nb", "x" * 256])
async def test_a_key_that_no_header_can_carry_is_refused_before_anything_is_sent(key: str) -> None:
    service = Service(ok(ACCEPTED, 202))
    with service.client() as client:
        for call in (
            lambda: client.submit("tiny", key=key),
            lambda: client.submit_many(RUNS, key=key),
            lambda: client.signal("r1", "go", key=key),
            lambda: client.redrive("r1", key=key),
            lambda: client.fork("r1", "a", key=key),
        ):
            with pytest.raises(ValueError, match="1–255 visible ASCII characters"):
                call()
    async with service.async_client() as asyncio_client:
        with pytest.raises(ValueError, match="visible ASCII"):
            await asyncio_client.submit("tiny", key=key)
    assert service.requests == []


async def test_an_address_that_leads_round_in_a_circle_is_no_fanfolds() -> None:
    service = Service(lambda _: httpx.Response(302, headers={"location": f"{URL}/v1/runs/r1"}))
    with service.client() as client, pytest.raises(NotFanfold, match=r"service\.test"):
        client.get("r1")
    async with service.async_client() as asyncio_client:
        with pytest.raises(NotFanfold, match=r"service\.test"):
            await asyncio_client.get("r1")


def test_no_answer_at_all_is_told_as_not_reachable() -> None:
    service = Service(httpx.ConnectError("refused"))
    with service.client(retry_for_seconds=0) as client, pytest.raises(NotReachable, match=r"service\.test"):
        client.get("r1")


@pytest.mark.parametrize(("status", "kind"), [(400, Invalid), (404, NotFound), (409, StateConflict), (422, Invalid)])
def test_problems_that_repeating_cant_cure_are_raised_at_once(status: int, kind: type[Exception]) -> None:
    service = Service(problem(status))
    with service.client() as client, pytest.raises(kind, match="What happened"):
        client.get("r1")
    assert len(service.requests) == 1


def test_a_problem_with_several_reasons_tells_all_of_them() -> None:
    errors = [{"pointer": "/steps/a", "detail": "unknown task"}, {"pointer": "/steps/b/needs/0", "detail": "no such"}]
    service = Service(problem(422, errors=errors))
    with service.client() as client, pytest.raises(Invalid) as invalid:
        client.apply({"name": "x"})
    assert invalid.value.errors == tuple(errors)
    assert "/steps/a: unknown task; /steps/b/needs/0: no such" in str(invalid.value)


def test_an_answer_that_is_not_json_is_told_so_and_not_believed() -> None:
    service = Service(httpx.Response(200, text="<html>hello</html>"))
    with service.client() as client, pytest.raises(Exception, match="is not JSON"):
        client.health()


def test_api_gateways_own_answer_without_a_problem_is_still_a_sentence() -> None:
    service = Service(httpx.Response(401, json={"message": "Unauthorized"}))
    with service.client() as client, pytest.raises(Exception, match="Unauthorized"):
        client.queues()


@pytest.mark.parametrize(
    ("document", "media_type"),
    [
        ({"name": "tiny"}, "application/json"),
        ("name: tiny\n", "application/yaml"),
        (b'{"name": "tiny"}', "application/yaml"),
    ],
)
def test_a_document_is_registered_under_the_name_it_has(document: Any, media_type: str) -> None:
    service = Service(ok({"name": "tiny", "version": "sha256:0", "created_at": "…"}, 201))
    with service.client() as client:
        client.apply(document)
    (request,) = service.requests
    assert (request.method, request.url.path[-18:]) == ("PUT", "/v1/workflows/tiny")
    assert request.headers["content-type"] == media_type


@pytest.mark.parametrize("document", ["- 1\n", "{", "steps: {}\n"])
def test_a_document_without_a_name_is_refused_before_anything_is_sent(document: str) -> None:
    service = Service(ok({}))
    with service.client() as client, pytest.raises(ValueError, match="document"):
        client.apply(document)
    assert service.requests == []


def test_waiting_asks_again_until_the_run_has_ended() -> None:
    service = Service(ok(a_run("queued")), ok(a_run("running")), ok(a_run("failed")))
    with service.client() as client:
        assert client.wait("r1")["status"] == "failed"
    assert all(request.url.params["wait"] == "20" for request in service.requests)


def test_waiting_ends_with_the_retry_time() -> None:
    service = Service(ok(a_run("running")))
    with service.client() as client, pytest.raises(TimeoutError, match="r1 is still running"):
        client.wait("r1", timeout=0)


def test_events_come_once_each_in_order_although_the_connection_breaks() -> None:
    service = Service(
        ok({"events": [an_event(1), an_event(2)], "last_seq": 2, "end": False}),
        httpx.ReadError("broken"),
        ok({"events": [], "last_seq": 2, "end": False}),
        ok({"events": [an_event(3, "run.succeeded")], "last_seq": 3, "end": True}),
    )
    with service.client() as client:
        assert [event["seq"] for event in client.events("r1")] == [1, 2, 3]
    assert [request.url.params["after"] for request in service.requests] == ["0", "2", "2", "2"]


def test_events_that_are_not_followed_end_with_what_is_there() -> None:
    service = Service(
        ok({"events": [an_event(1)], "last_seq": 1, "end": False}), ok({"events": [], "last_seq": 1, "end": False})
    )
    with service.client() as client:
        assert [event["seq"] for event in client.events("r1", follow=False)] == [1]
    assert "wait" not in service.requests[0].url.params


def test_listing_reads_page_after_page_and_takes_a_short_page_for_no_end() -> None:
    service = Service(
        ok({"runs": [a_run(id="c")], "next_cursor": "n1"}),
        ok({"runs": [], "next_cursor": "n2"}),
        ok({"runs": [a_run(id="a")], "next_cursor": None}),
    )
    with service.client() as client:
        assert [run["id"] for run in client.runs(status="failed", tags=["a=1", "b"])] == ["c", "a"]
    first, second, third = (dict(request.url.params.multi_items()) for request in service.requests)
    assert "cursor" not in first
    assert (second["cursor"], third["cursor"]) == ("n1", "n2")
    assert service.requests[2].url.params.get_list("tag") == ["a=1", "b"]


def test_queues_are_a_list() -> None:
    with Service(ok({"queues": [{"class": "model"}]})).client() as client:
        assert client.queues() == [{"class": "model"}]


@pytest.mark.parametrize("attempt", range(1, 12))
def test_pauses_grow_stay_below_eight_seconds_and_are_never_negative(attempt: int) -> None:
    for chance in (0.0, 0.5, 0.999):
        pause = pause_before_repeat(
            attempt, retry_after_seconds=None, spent_seconds=0, retry_for_seconds=60, chance=chance
        )
        assert pause is not None
        assert 0 < pause < 8


async def test_the_asyncio_client_makes_the_same_promises() -> None:
    service = Service(
        problem(429, retry_after="1"),
        ok(ACCEPTED, 202),
        httpx.ConnectError("refused"),
        ok({"events": [an_event(1, "run.succeeded")], "last_seq": 1, "end": True}),
        ok(a_run("running")),
        ok(a_run("succeeded")),
        ok({"runs": [a_run()], "next_cursor": None}),
        problem(404),
    )
    async with service.async_client() as client:
        accepted = await client.submit("tiny")
        assert [event["seq"] async for event in client.events(accepted["id"])] == [1]
        assert (await client.wait("r1"))["status"] == "succeeded"
        assert [run["id"] async for run in client.runs()] == ["r1"]
        with pytest.raises(NotFound):
            await client.get("r2")
    assert service.requests[0].headers["idempotency-key"] == service.requests[1].headers["idempotency-key"]


async def test_the_asyncio_client_gives_up_where_the_other_does() -> None:
    service = Service(httpx.ConnectError("refused"))
    async with service.async_client(retry_for_seconds=0) as client:
        with pytest.raises(NotReachable):
            await client.health()
        with pytest.raises(NotReachable):
            await client.queues()
        with pytest.raises(NotReachable):
            await client.apply({"name": "x"})
        with pytest.raises(NotReachable):
            await client.wait("r1", timeout=1)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *[("60", 60), ("0", 0), ("1.2", 2), ("-3", 0)],
        *[("", None), (None, None), ("nan", None), ("1e400", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None)],
    ],
)
def test_when_to_come_back_is_a_whole_number_of_seconds(header: str | None, seconds: int | None) -> None:
    found = seconds_of(header)
    assert (found, type(found)) == (seconds, type(seconds))
