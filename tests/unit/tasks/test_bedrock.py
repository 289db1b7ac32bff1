"""`bedrock.converse`: what is asked, what is told of it, and which failures another attempt may cure."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.stub import Stubber

from fanfold.engine.errors import Fail, Retry
from fanfold.service.clock import SystemClock
from fanfold.service.settings import Settings
from fanfold.service.worker.task_runner import Job, Succeeded, TaskRunner
from fanfold.tasks import bedrock
from fanfold.tasks.bedrock import converse
from fanfold.tasks.context import MAX_EMIT_BYTES, Context
from fanfold.tasks.converse import request_of

ASKED = {"model": "some.model", "prompt": "Hello?"}
ENOUGH = 15.0
"""Seconds a test waits for what comes at once."""


def a_context(said: list[Any] | None = None) -> Context:
    return Context(run_id="r1", step="s", emitter=[].append if said is None else said.append)


def frame(event: str, payload: dict[str, Any], *, kind: str = "event") -> bytes:
    """An event as a message of AWS's event stream encoding."""
    names = {":message-type": kind, f":{kind}-type": event, ":content-type": "application/json"}
    return message(names, json.dumps(payload).encode())


def message(names: dict[str, str], body: bytes) -> bytes:
    """One message of AWS's event stream encoding, with these headers."""

    def header(name: str, value: str) -> bytes:
        return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()

    headers = b"".join(header(name, value) for name, value in names.items())
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    text = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + body
    return text + struct.pack(">I", zlib.crc32(text))


def words(text: str, block: int = 0) -> bytes:
    return frame("contentBlockDelta", {"contentBlockIndex": block, "delta": {"text": text}})


END = frame("messageStop", {"stopReason": "end_turn"}) + frame(
    "metadata", {"usage": {"inputTokens": 3, "outputTokens": 7, "totalTokens": 10}, "metrics": {"latencyMs": 5}}
)


class Model:
    """A Bedrock that says `parts` one after the other, and hangs until it is let go where one is None."""

    def __init__(self) -> None:
        self.parts: list[bytes | None] = []
        self.silent = threading.Event()
        self.released = threading.Event()
        self.url = ""


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, session: boto3.Session) -> Iterator[Model]:
    model = Model()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "application/vnd.amazon.eventstream")
            self.end_headers()
            for part in model.parts:
                if part is None:
                    model.silent.set()
                    model.released.wait(ENOUGH)
                else:
                    self.wfile.write(part)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: a test's output is its own."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    client = a_client(session, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(bedrock, "_client", lambda _: client)
    try:
        yield model
    finally:
        model.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
        client.close()


def a_client(session: boto3.Session, url: str | None = None) -> Any:
    config = Config(retries={"total_max_attempts": 1}, read_timeout=ENOUGH)
    return session.client("bedrock-runtime", endpoint_url=url, config=config)


# --- what is asked ------------------------------------------------------------------------------------------------


def test_a_prompt_becomes_one_message_and_the_rest_goes_where_bedrock_wants_it() -> None:
    given = {**ASKED, "system": "Be kind", "max_tokens": 50, "temperature": 0, "top_p": 0.5, "stop": "END"}
    assert request_of({**given, "more": {"requestMetadata": {"team": "blue"}}}).request == {
        "modelId": "some.model",
        "messages": [{"role": "user", "content": [{"text": "Hello?"}]}],
        "system": [{"text": "Be kind"}],
        "inferenceConfig": {"maxTokens": 50, "temperature": 0, "topP": 0.5, "stopSequences": ["END"]},
        "requestMetadata": {"team": "blue"},
    }


S3 = {"format": "png", "source": {"s3Location": {"uri": "s3://fanfold-bucket/other/r1/s/input", "bucketOwner": "1"}}}


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt": [{"image": S3}]},
        {"prompt": ["what is this?", {"document": {**S3, "name": "d"}}]},
        {"messages": [{"role": "user", "content": [{"video": S3}]}]},
        {"messages": [{"role": "user", "content": [{"toolResult": {"toolUseId": "1", "content": [{"image": S3}]}}]}]},
        {"messages": [{"role": "user", "content": "x", "more": S3}]},
        {"prompt": "x", "system": [{"guardContent": {"image": S3}}]},
        {"prompt": "x", "more": {"system": [{"document": S3}]}},
        {"prompt": "x", "more": {"additionalModelRequestFields": {"messages": [{"content": [{"image": S3}]}]}}},
    ],
)
def test_content_that_would_be_read_with_the_workers_role_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(Fail, match="s3Location is refused"):
        request_of({"model": "m", **asked})


def test_the_data_of_tools_may_name_what_it_likes() -> None:
    data = {"s3Location": "s3://a/b"}
    talk = [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "1", "name": "find", "input": data}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "1", "content": [{"json": data}]}}]},
    ]
    tools = {"tools": [{"toolSpec": {"name": "find", "inputSchema": {"json": {"properties": data}}}}]}
    asked = request_of({"model": "m", "messages": talk, "more": {"toolConfig": tools}})
    assert asked.request["messages"] == talk


def test_messages_may_have_texts_for_their_content() -> None:
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"text": "Hello"}, "!"]}]
    assert request_of({"model": "m", "messages": talk}).request["messages"] == [
        {"role": "user", "content": [{"text": "Hi"}]},
        {"role": "assistant", "content": [{"text": "Hello"}, {"text": "!"}]},
    ]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("Hello?", "object"),
        ({"prompt": "Hello?"}, "model"),
        ({**ASKED, "model": ""}, "model"),
        ({"model": "m"}, "one of prompt and messages"),
        ({**ASKED, "messages": []}, "one of prompt and messages"),
        ({**ASKED, "prompt": 7}, "prompt"),
        ({"model": "m", "messages": ["Hi"]}, "messages"),
        ({**ASKED, "max_token": 5}, "max_token; known are model, prompt"),
        ({**ASKED, "emit": "yes"}, "emit"),
        ({**ASKED, "more": []}, "more"),
    ],
)
def test_an_input_that_makes_no_sense_fails_the_step_for_good_and_says_why(given: Any, named: str) -> None:
    with pytest.raises(Fail, match=named):
        converse(given, a_context())


@pytest.mark.parametrize("wrong", [{"max_tokens": "many"}, {"more": {"toolsConfig": {}}}])
def test_what_bedrock_does_not_know_is_refused_before_it_is_asked(model: Model, wrong: Any) -> None:
    with pytest.raises(Fail, match=r"maxTokens|toolsConfig"):
        converse({**ASKED, **wrong}, a_context())


# --- what is told -------------------------------------------------------------------------------------------------


def test_what_the_model_says_is_the_output_with_its_tokens_and_is_emitted(model: Model) -> None:
    model.parts = [frame("messageStart", {"role": "assistant"}), words("Hello"), words(" there ü"), END]
    said: list[Any] = []
    answer = converse(ASKED, a_context(said))
    usage = {"input_tokens": 3, "output_tokens": 7}
    assert answer == {"text": "Hello there ü", "stop_reason": "end_turn", "usage": usage}
    # Faster than a second: one entry in the journal, not one for each word.
    assert said == [{"text": "Hello there ü"}]


def test_text_is_emitted_as_it_comes_in_entries_a_journal_can_take(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bedrock, "EMIT_SECONDS", 0)
    long = "😀" * 5_000  # the costliest characters there are: 12 bytes each as JSON
    model.parts = [words("a"), words(long), END]
    said: list[Any] = []
    converse(ASKED, a_context(said))
    assert len(said) == 4
    assert "".join(entry["text"] for entry in said) == "a" + long
    assert max(len(json.dumps(entry)) for entry in said) <= MAX_EMIT_BYTES


def test_nothing_is_emitted_where_the_input_says_so(model: Model) -> None:
    model.parts = [words("Hello"), END]
    said: list[Any] = []
    converse({**ASKED, "emit": False}, a_context(said))
    assert said == []


def test_the_tools_a_model_wants_called_are_in_the_output(model: Model) -> None:
    start = {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t1", "name": "weather"}}}
    parts = [{"contentBlockIndex": 1, "delta": {"toolUse": {"input": part}}} for part in ('{"city":', ' "Rome"}')]
    model.parts = [words("Let me look."), frame("contentBlockStart", start)]
    model.parts += [frame("contentBlockDelta", part) for part in parts]
    model.parts += [frame("messageStop", {"stopReason": "tool_use"})]
    answer: Any = converse(ASKED, a_context())
    assert answer["tool_calls"] == [{"id": "t1", "name": "weather", "input": {"city": "Rome"}}]
    assert (answer["stop_reason"], answer["usage"]) == ("tool_use", None)


@pytest.mark.parametrize("written", ['{"city": NaN}', '{"city": 1, "city": 2}', '{"city": "Ro'])
def test_a_tools_input_that_no_record_could_hold_is_the_text_it_was_written_as(model: Model, written: str) -> None:
    start = {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t1", "name": "weather"}}}
    part = {"contentBlockIndex": 0, "delta": {"toolUse": {"input": written}}}
    model.parts = [frame("contentBlockStart", start), frame("contentBlockDelta", part)]
    model.parts += [frame("messageStop", {"stopReason": "tool_use"})]
    answer: Any = converse(ASKED, a_context())
    assert answer["tool_calls"] == [{"id": "t1", "name": "weather", "input": written}]


# --- what goes wrong ----------------------------------------------------------------------------------------------


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch, session: boto3.Session) -> Iterator[Callable[..., None]]:
    client = a_client(session)
    monkeypatch.setattr(bedrock, "_client", lambda _: client)
    with Stubber(client) as stubber:

        def refuse(code: str, status: int, **headers: str) -> None:
            meta = {"HTTPHeaders": {name.replace("_", "-"): value for name, value in headers.items()}}
            stubber.add_client_error("converse_stream", code, "no", status, response_meta=meta)

        yield refuse
    client.close()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ThrottlingException", 429),
        ("ServiceUnavailableException", 503),
        ("ModelNotReadyException", 429),
        ("ModelTimeoutException", 408),
        ("ModelErrorException", 424),
        ("InternalServerException", 500),
        ("SomethingNew", 502),
    ],
)
def test_what_another_attempt_may_cure_is_retried(stubbed: Callable[..., None], code: str, status: int) -> None:
    stubbed(code, status)
    with pytest.raises(Retry, match=code) as retry:
        converse(ASKED, a_context())
    assert retry.value.after is None  # the step's own backoff


@pytest.mark.parametrize(("hint", "after"), [("17", 17.0), ("0.5", 0.5), ("-1", None), ("inf", None), ("soon", None)])
def test_the_services_own_hint_says_when(stubbed: Callable[..., None], hint: str, after: float | None) -> None:
    stubbed("ThrottlingException", 429, retry_after=hint)
    with pytest.raises(Retry) as retry:
        converse(ASKED, a_context())
    assert retry.value.after == after


@pytest.mark.parametrize(
    ("code", "status"),
    [("AccessDeniedException", 403), ("ValidationException", 400), ("ResourceNotFoundException", 404), ("New", 400)],
)
def test_what_will_be_refused_again_is_not_retried(stubbed: Callable[..., None], code: str, status: int) -> None:
    stubbed(code, status)
    with pytest.raises(Fail, match=code):
        converse(ASKED, a_context())


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("throttlingException", Retry),
        ("serviceUnavailableException", Retry),
        ("modelStreamErrorException", Retry),
        ("internalServerException", Retry),
        ("validationException", Fail),
    ],
)
def test_an_error_in_the_middle_of_the_answer_is_judged_alike(model: Model, code: str, kind: type[Exception]) -> None:
    model.parts = [words("Hello"), frame(code, {"message": "no"}, kind="exception")]
    with pytest.raises(kind, match=code):
        converse(ASKED, a_context())


STREAMS_OWN = message({":message-type": "error", ":error-code": "InternalFailure", ":error-message": "no"}, b"")


@pytest.mark.parametrize("part", [STREAMS_OWN, frame("newerThanThisSdkException", {"message": "no"}, kind="exception")])
def test_an_error_in_the_middle_that_nobody_knows_is_worth_another_attempt(model: Model, part: bytes) -> None:
    model.parts = [words("Hello"), part]
    with pytest.raises(Retry):
        converse(ASKED, a_context())


def test_an_answer_that_breaks_off_is_no_answer(model: Model) -> None:
    model.parts = [words("Hello")]
    with pytest.raises(Retry, match="broke off"):
        converse(ASKED, a_context())


def test_nobody_there_is_worth_another_attempt(monkeypatch: pytest.MonkeyPatch, session: boto3.Session) -> None:
    client = a_client(session, "http://127.0.0.1:9")
    monkeypatch.setattr(bedrock, "_client", lambda _: client)
    with pytest.raises(Retry, match=r"127\.0\.0\.1:9"):
        converse(ASKED, a_context())
    client.close()


async def test_a_cancelled_attempt_hangs_up_although_the_model_is_silent(model: Model) -> None:
    model.parts = [words("Hello"), None, END]
    attempts = TaskRunner(Settings(), SystemClock())
    job = Job(
        tenant="acme", run_id="r1", submission="s1", step="s", attempt=1, epoch=1, task="bedrock.converse",
        input=ASKED, timeout_seconds=60,
    )  # fmt: skip
    attempt = asyncio.create_task(attempts.run(job, emit=lambda _: None))
    assert await asyncio.to_thread(model.silent.wait, ENOUGH)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    # Its thread was waited for; it may still be on its last line.
    for thread in [thread for thread in threading.enumerate() if thread.name == "task bedrock.converse"]:
        await asyncio.to_thread(thread.join, ENOUGH)
        assert not thread.is_alive()
    assert attempts.lingering == 0
    assert not attempts.spent


def test_a_step_waits_for_its_model_no_longer_than_it_has_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    asked: list[int] = []

    def client(read_seconds: int) -> Any:
        asked.append(read_seconds)
        raise Fail("enough seen")

    monkeypatch.setattr(bedrock, "_client", client)
    for left in (59.98, 0.0, float("inf")):
        with pytest.raises(Fail):
            converse(ASKED, Context(run_id="r1", step="s", time_left=lambda left=left: left))
    assert asked == [60, 1, bedrock.LONGEST_SILENCE_SECONDS]
    monkeypatch.undo()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    made = bedrock._client(60)
    assert (made.meta.config.read_timeout, made.meta.config.retries["total_max_attempts"]) == (60, 1)
    assert bedrock._client(60) is made


@pytest.mark.emulator
async def test_a_model_of_the_emulator_answers_in_the_shape_promised(
    monkeypatch: pytest.MonkeyPatch, session: boto3.Session, emulator_url: str
) -> None:
    client = a_client(session, emulator_url)
    monkeypatch.setattr(bedrock, "_client", lambda _: client)
    said: list[Any] = []
    attempts = TaskRunner(Settings(), SystemClock())
    job = Job(
        tenant="acme", run_id="r1", submission="s1", step="s", attempt=1, epoch=1, task="bedrock.converse",
        input={"model": "amazon.nova-lite-v1:0", "prompt": "Hello?", "max_tokens": 50}, timeout_seconds=60,
    )  # fmt: skip
    outcome = await attempts.run(job, emit=said.append)
    assert isinstance(outcome, Succeeded)
    answer: Any = outcome.output
    assert set(answer) == {"text", "stop_reason", "usage"}
    assert answer["text"]
    assert all(isinstance(tokens, int) for tokens in answer["usage"].values())
    assert set(answer["usage"]) == {"input_tokens", "output_tokens"}
    assert "".join(entry["text"] for entry in said) == answer["text"]
    client.close()
