"""Cold starts of each function: imported and called the first time, in fresh interpreters, on the emulator's services.

What a folder like the shipped one holds is all that is there. Times are the processor's: Lambda's own start, the
machine's share and the waiting for AWS are not in them. A function is cold once in its sandbox's life.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any

from fanfold.engine.record.messages import QueueName
from fanfold.local import deploy
from fanfold.service.aws_clients import Aws
from fanfold.service.settings import Settings
from fanfold.service.wiring import services
from loadtest.access import endpoint_of, session_of
from loadtest.coldstarts import MODULES, Start, cold_start, import_shares, shipped
from loadtest.measure import quantiles
from loadtest.scenario import Found, Session
from loadtest.server import request_event
from loadtest.shapes import TINY
from loadtest.systems_under_test import Needs, Target
from loadtest.verdict import Check, at_most, equal, shown

QUICK = {"starts": 2}

CLASS = "model"
ACCOUNT = "arn:aws:sqs:us-east-1:000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A first call: of which handler, with which event."""

    name: str
    handler: str
    event: Mapping[str, Any]


def coldstart(
    session: Session, *, starts: Annotated[int, "Cold starts of each function, taken in turn."] = 20
) -> Found:
    """Every function in turn, so many times."""
    if session.kind != "emulator":
        raise ValueError("coldstart calls functions on this machine: --target emulator")
    package = shipped(session.scratch / "package")
    taken: dict[str, list[Start]] = {}
    with session.target(Needs(unworked=True, settings={"submits_per_minute": 0})) as target:
        assert target.stack is not None
        environ = target.stack.environment({})
        cases: list[Case] = []
        for number, cases in enumerate(_cases(target, starts + 1)):
            session.say(f"cold starts, round {number} of {starts}")
            for case in cases:
                start = cold_start(package, case.handler, case.event, environ)
                if number:  # the first round brings files into the machine's memory
                    taken.setdefault(case.name, []).append(start)
                    facts = {"import_ms": start.import_ms, "first_ms": start.first_ms, "elapsed_ms": start.elapsed_ms}
                    session.recorder.row(case=case.name, round=number, modules=start.modules, **facts)
        shares = {case.name: import_shares(package, case.handler, case.event, environ) for case in cases}
    figures = {name: _figures(found) | {"import_shares": shares[name]} for name, found in taken.items()}
    return Found(figures=figures, checks=_checks({case.name: case.handler for case in cases}, taken, figures, starts))


def _cases(target: Target, rounds: int) -> Iterator[list[Case]]:
    """The calls of each round; a worker is given another run each time."""
    assert target.stack is not None
    settings = Settings.from_env(target.stack.env)
    aws = Aws(session_of(target.stack), endpoint_url=endpoint_of(target.stack))
    with target.client() as client, closing(aws):
        client.apply(TINY.document)
        queue = services(settings, aws).queue
        lane = QueueName(class_name=CLASS, role="normal")
        for _ in range(rounds):
            run = client.submit(TINY.document["name"], TINY.given)
            message = asyncio.run(queue.receive(lane, limit=1, wait_seconds=5, visibility_seconds=600))[0]
            urls = settings.classes[CLASS].queues
            yield [
                Case(name="api, a submit", handler="api", event=_request("POST", "/v1/runs", _submission())),
                Case(name="watch, a read", handler="watch", event=_request("GET", f"/v1/runs/{run['id']}")),
                Case(name="api, health", handler="api", event=_request("GET", "/v1/health")),
                Case(
                    name="authorizer",
                    handler="authorizer",
                    event={"routeArn": "", "headers": {"authorization": f"Bearer {target.token}"}},
                ),
                Case(name="worker, a run", handler="worker", event=_delivery(urls["normal"], message)),
                Case(name="deadletter", handler="deadletter", event=_delivery(urls["dead"], message)),
                Case(name="fanout, of a run that is gone", handler="fanout", event=_order()),
                Case(name="sweeper", handler="sweeper", event={}),
            ]


def _submission() -> bytes:
    return json.dumps({"workflow": TINY.document["name"], "input": TINY.given}).encode()


def _request(method: str, path: str, body: bytes = b"") -> Mapping[str, Any]:
    event = request_event(method, path, body=body)
    event["requestContext"]["authorizer"]["lambda"]["tenant"] = deploy.TENANT
    return event


def _delivery(queue_url: str, message: Any) -> Mapping[str, Any]:
    record = {
        "messageId": message.message_id,
        "receiptHandle": message.receipt,
        "body": message.body,
        "attributes": {"ApproximateReceiveCount": "1"},
        "eventSourceARN": f"{ACCOUNT}:{queue_url.rpartition('/')[2]}",
    }
    return {"Records": [record]}


def _order() -> Mapping[str, Any]:
    batch = {"from": 0, "to": 1}
    return {"tenant": deploy.TENANT, "run": "gone", "submission": "A" * 16, "step": "wide", "try": 1, "batch": batch}


def _figures(found: list[Start]) -> dict[str, Any]:
    return {
        "import_processor_ms": quantiles(start.import_ms for start in found),
        "first_call_processor_ms": quantiles(start.first_ms for start in found),
        "elapsed_ms": quantiles(start.elapsed_ms for start in found),
        "modules": max(start.modules for start in found),
    }


def _checks(
    handlers: Mapping[str, str], taken: Mapping[str, list[Start]], figures: Mapping[str, Any], starts: int
) -> list[Check]:
    answered = {name: sum(_answered(start.answer) for start in found) for name, found in taken.items()}
    checks = [equal(f"{name}: first calls that were answered", count, starts) for name, count in answered.items()]
    for handler, budget in MODULES.items():
        most = max(figures[name]["modules"] for name, its in handlers.items() if its == handler)
        checks.append(at_most(f"{handler}: modules that its import loads", most, budget))
    for name, found in taken.items():
        whole = sorted(start.import_ms + start.first_ms for start in found)
        parts = (median(start.import_ms for start in found), median(start.first_ms for start in found))
        text = (
            f"{median(whole):.0f} ms ({whole[0]:.0f}–{whole[-1]:.0f}): import {parts[0]:.0f}, first call {parts[1]:.0f}"
        )
        checks.append(shown(f"{name}: processor time, median (least–most)", f"{text}; n = {len(found)}"))
        shares = ", ".join(f"{package} {share:.0%}" for package, share in figures[name]["import_shares"].items())
        checks.append(shown(f"{name}: imports by package", shares))
    return checks


def _answered(answer: Any) -> bool:
    """Whether a handler did what it was called for."""
    if not isinstance(answer, dict):
        return isinstance(answer, str)
    return answer.get("statusCode", 200) < 400 and not answer.get("batchItemFailures")
