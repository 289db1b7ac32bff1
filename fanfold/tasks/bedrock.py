"""A real model through Amazon Bedrock: `bedrock.converse`, streamed into the run's journal.

The client is made here and not by `fanfold.service.wiring`: a task knows nothing of the floors above it, and a
model is waited for as long as its step has time, not for the five seconds of every other call. More about it in
docs/decisions/0041-bedrock.md.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError, EventStreamError, ParamValidationError

from fanfold.engine.errors import Fail, Retry
from fanfold.engine.payload import Json, parse
from fanfold.tasks.context import Context
from fanfold.tasks.converse import Asked, request_of
from fanfold.tasks.registry import task

EMIT_SECONDS: Final = 1.0
"""Text is emitted at most so often: every emitted value is an entry of the journal."""
EMIT_CHARACTERS: Final = 2_000
"""The most of one entry: as escaped JSON at most 24 KB, below what one emitted value may have."""

CONNECT_SECONDS: Final = 5
LONGEST_SILENCE_SECONDS: Final = 3_600
"""How long a model may say nothing where the step has no end: what AWS advises as the longest read timeout."""
CANCEL_POLL_SECONDS: Final = 0.25

_AGAIN: Final = frozenset(
    {
        "expiredtokenexception",
        "internalserverexception",
        "modelerrorexception",
        "modelnotreadyexception",
        "modelstreamerrorexception",
        "modeltimeoutexception",
        "serviceunavailableexception",
        "throttlingexception",
        "toomanyrequestsexception",
    }
)
"""The service's words, in lower case, for what another try may cure."""
_AGAIN_STATUSES: Final = frozenset({408, 424, 429})


@task("bedrock.converse")
def converse(given: Json, ctx: Context) -> Json:
    """Asks a model and returns `{text, stop_reason, usage: {input_tokens, output_tokens}, tool_calls?}`.

    What it says is emitted as `{text}`, at most once a second, unless `emit` is false. Throttling, a model that is
    not ready and the service's own failures are `Retry`, after the time the service names if it does; a request it
    finds wrong or does not allow is `Fail`.
    """
    asked = request_of(given)
    with _judged():
        answer = _client(_silence_seconds(ctx)).converse_stream(**asked.request)
        with _hung_up_on_cancel(answer["stream"], ctx.cancellation):
            return _listen(answer["stream"], asked, ctx)


def _listen(stream: Any, asked: Asked, ctx: Context) -> Json:
    """The answer, put together from its events."""
    text: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    stop_reason, usage = None, None
    teller = _Teller(ctx.emit if asked.emit else None)
    for event in stream:
        match event:
            case {"contentBlockStart": {"contentBlockIndex": int(index), "start": {"toolUse": dict(use)}}}:
                calls[index] = {"id": use.get("toolUseId"), "name": use.get("name"), "input": ""}
            case {"contentBlockDelta": {"delta": {"text": str(said)}}}:
                text.append(said)
                teller.say(said)
            case {"contentBlockDelta": {"contentBlockIndex": int(index), "delta": {"toolUse": {"input": str(part)}}}}:
                calls.setdefault(index, {"id": None, "name": None, "input": ""})["input"] += part
            case {"messageStop": {"stopReason": str(reason)}}:
                stop_reason = reason
            case {"metadata": {"usage": dict(tokens)}}:
                usage = {"input_tokens": tokens.get("inputTokens"), "output_tokens": tokens.get("outputTokens")}
    if stop_reason is None:
        raise Retry("the model's answer broke off")
    teller.end()
    answer: dict[str, Json] = {"text": "".join(text), "stop_reason": stop_reason, "usage": usage}
    if calls:
        answer["tool_calls"] = [{**calls[index], "input": _parsed(calls[index]["input"])} for index in sorted(calls)]
    return answer


class _Teller:
    """Emits what is said in pieces, at most once a second; all of it by the `end`."""

    def __init__(self, emit: Callable[[Json], None] | None) -> None:
        self._emit = emit
        self._pending = ""
        self._told_at = time.monotonic()

    def say(self, text: str) -> None:
        self._pending += text
        if time.monotonic() - self._told_at >= EMIT_SECONDS:
            self.end()

    def end(self) -> None:
        pending, self._pending, self._told_at = self._pending, "", time.monotonic()
        if self._emit is not None:
            for start in range(0, len(pending), EMIT_CHARACTERS):
                self._emit({"text": pending[start : start + EMIT_CHARACTERS]})


@contextmanager
def _judged() -> Iterator[None]:
    """Says of the SDK's errors whether another attempt may help, and when."""
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        metadata = error.response.get("ResponseMetadata", {})
        status = int(metadata.get("HTTPStatusCode") or 0)
        if isinstance(error, EventStreamError):
            # The answer had begun: what ends it is the service's affair. What the SDK does not know has no code here.
            again = code.lower() != "validationexception"
        else:
            again = code.lower() in _AGAIN or status in _AGAIN_STATUSES or status >= 500
        if again:
            raise Retry(str(error), after=_hint(metadata.get("HTTPHeaders") or {})) from error
        raise Fail(str(error)) from error
    except ParamValidationError as error:
        raise Fail(str(error)) from error
    except BotoCoreError as error:  # no connection, no credentials, a silence too long
        raise Retry(str(error)) from error


def _hint(headers: Mapping[str, str]) -> float | None:
    """Seconds until the service wants to be asked again; None where it does not say."""
    try:
        seconds = float(headers["retry-after"])
    except (KeyError, ValueError):  # absent, or a date, which Bedrock does not send
        return None
    return seconds if 0 <= seconds < math.inf else None


@contextmanager
def _hung_up_on_cancel(stream: Any, cancellation: threading.Event) -> Iterator[None]:
    """Ends the stream when the attempt is cancelled, also while nothing comes, and at the end in any case."""
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if cancellation.wait(CANCEL_POLL_SECONDS):
                if not done.is_set():
                    _hang_up(stream)
                return

    watcher = threading.Thread(target=watch, name="bedrock.converse cancellation", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        stream.close()


def _hang_up(stream: Any) -> None:
    # Closing alone does not wake a thread that reads from the connection, and botocore offers nothing that does.
    try:
        stream._raw_stream.shutdown()
    except (OSError, RuntimeError, ValueError):
        stream.close()  # the connection has gone back to its pool, or has ended by itself


def _silence_seconds(ctx: Context) -> int:
    """How long the model may say nothing: as long as the step has left. Whole, so that steps alike share a client."""
    return math.ceil(min(max(1.0, ctx.remaining_seconds()), LONGEST_SILENCE_SECONDS))


@functools.lru_cache(maxsize=16)
def _client(read_seconds: int) -> Any:
    """A client whose answers may be silent for so long, made once: that takes tens of milliseconds."""
    import boto3
    from botocore.config import Config

    # One try: the step's own policy says how often, and a worker's slot is not for waiting.
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=read_seconds,
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=64,
    )
    return boto3.Session().client("bedrock-runtime", config=config)


def _parsed(text: str) -> Json:
    """A tool's input as the model wrote it: JSON, or the text where it is none (NaN is none: no record holds it)."""
    try:
        return parse(text) if text else {}
    except ValueError:
        return text
