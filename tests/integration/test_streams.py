"""Watching runs through the whole stack: curl, an EventSource without a token, the client, the command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

import httpx
import pytest

from fanfold import Client
from fanfold.local.local_stack import LocalStack
from tests.integration.test_local_stack import fanfold
from tests.support.eventsource import EventSource, Message

pytestmark = pytest.mark.emulator

CHATTY = {
    "name": "chatty",
    "steps": {
        "talk": {"task": "chaos.emit", "input": {"count": 6, "every_ms": 400}},
        "then": {"task": "core.echo", "needs": ["talk"], "input": "done"},
    },
}
DOOMED = {"name": "doomed", "steps": {"no": {"task": "chaos.fail", "input": {"retryable": False}}}}


async def listen(url: str, *, drop: int | None = None) -> tuple[list[Message], EventSource]:
    """What a browser's EventSource is told until the end; with `drop`, it forgets each answer after so many events."""
    source, told = EventSource(), []
    async with httpx.AsyncClient(trust_env=False, timeout=40) as http:

        async def connect(headers: dict[str, str]) -> str:
            if source.connections > 1:
                await asyncio.sleep(source.retry_ms / 1000)
            answer = await http.get(url, headers=headers)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream"), answer.text
            if drop is None:
                return answer.text
            # The connection breaks in the middle of an event.
            return "\n\n".join(answer.text.split("\n\n")[: drop + 1])

        async for message in source.listen(connect):
            told.append(message)
            if message.type == "end":
                break
    return told, source


def seqs(messages: list[Message]) -> list[int]:
    return [message.json["seq"] for message in messages if message.type != "end"]


@pytest.mark.parametrize(
    ("workflow", "ending", "drop"),
    [("chatty", "succeeded", None), ("chatty", "succeeded", 2), ("doomed", "failed", None)],
)
def test_an_eventsource_without_a_token_sees_every_event_once_to_the_end(
    stack: LocalStack, client: Client, workflow: str, ending: str, drop: int | None
) -> None:
    client.apply(CHATTY if workflow == "chatty" else DOOMED)
    accepted = client.submit(workflow)
    told, source = asyncio.run(listen(f"{stack.api_url}/{accepted['links']['stream']}", drop=drop))
    assert seqs(told) == list(range(1, len(told)))
    assert [message.type for message in told[-2:]] == [f"run.{ending}", "end"]
    assert source.connections > 1 or workflow == "doomed"  # which has ended before anybody asks
    again, _ = asyncio.run(listen(f"{stack.api_url}/{client.get(accepted['id'])['links']['stream']}"))
    assert [message.json for message in again] == [message.json for message in told]


def test_curl_follows_a_run_with_a_token(stack: LocalStack, client: Client) -> None:
    client.apply(CHATTY)
    run_id = client.submit("chatty")["id"]
    told: list[Message] = []
    source = EventSource()
    while not (told and told[-1].type == "end"):
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--no-buffer", "--noproxy", "*", "--max-time", "40",
             "--header", f"Authorization: Bearer {stack.token}", "--header", "Accept: text/event-stream",
             "--header", f"Last-Event-ID: {source.last_event_id}",
             f"{stack.api_url}/v1/runs/{run_id}/events"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        told += source.read(done.stdout)
    assert seqs(told) == list(range(1, len(told)))
    assert told[-2].type == "run.succeeded"


def test_a_stream_needs_its_ticket_and_nothing_but_it(stack: LocalStack, client: Client) -> None:
    link = client.submit("tiny")["links"]["stream"]
    with httpx.Client(trust_env=False, timeout=40) as stranger:
        answer = stranger.get(f"{stack.api_url}/{link}", headers={"Origin": "https://page.example"})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")
        forged = link[:-2] + ("AA" if link[-2:] != "AA" else "BB")
        assert stranger.get(f"{stack.api_url}/{forged}").status_code == 401


def test_a_batch_from_a_file_is_submitted_and_the_bad_line_is_told(
    stack: LocalStack, client: Client, tmp_path: Any
) -> None:
    lines: list[dict[str, Any]] = [{"input": {"name": str(number)}} for number in range(120)]
    lines[7] = {"workflow": "no-such"}
    file = tmp_path / "runs.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    done = fanfold(stack, "submit", "tiny", "--batch", str(file), "--key", "nightly")
    ids = done.stdout.split()
    assert (done.returncode, len(ids), len(set(ids))) == (2, 119, 119)
    assert done.stderr.startswith("line 8: Not found")
    again = fanfold(stack, "submit", "tiny", "--batch", str(file), "--key", "nightly", "--json")
    assert [r["run"]["id"] for r in json.loads(again.stdout) if "run" in r] == ids
    for run_id in (ids[0], ids[-1]):
        assert client.wait(run_id, timeout=60)["status"] == "succeeded"


def test_followed_events_are_lines_in_a_pipe(stack: LocalStack, client: Client) -> None:
    client.apply(CHATTY)
    run_id = client.submit("chatty")["id"]
    done = fanfold(stack, "events", run_id, "--follow")
    numbers = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert (done.returncode, numbers) == (0, list(range(1, len(numbers) + 1)))
    assert done.stdout.splitlines()[-1].split()[2] == "run.succeeded"
