"""What a step asks of a model, as a request of Bedrock's Converse API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fanfold.engine.errors import Fail
from fanfold.engine.payload import Json

_INFERENCE: Final = {"max_tokens": "maxTokens", "temperature": "temperature", "top_p": "topP", "stop": "stopSequences"}
_KEYS: Final = ("model", "prompt", "messages", "system", *_INFERENCE, "emit", "more")

_FREE: Final = frozenset({"json", "input", "inputSchema"})
"""Where a request holds any JSON: what a tool gave, is given, and takes. Nothing in it names content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A step's input, understood: the request's parameters, and whether what the model says is to be emitted."""

    request: Mapping[str, Any]
    emit: bool


def request_of(given: Json) -> Asked:
    """The request a step's input means. Raises `Fail` naming what is wrong with it.

    `model` and either `prompt` (a text) or `messages` (Converse's own, or with a text for their `content`), then
    optionally `system`, `max_tokens`, `temperature`, `top_p`, `stop`, `emit`, and `more`: further parameters as
    Converse names them (`toolConfig`, `guardrailConfig`, …).
    """
    if not isinstance(given, dict):
        raise Fail(f"the input must be an object with model and prompt, not {type(given).__name__}")
    if unknown := sorted(given.keys() - set(_KEYS)):
        raise Fail(f"the input has {', '.join(unknown)}; known are {', '.join(_KEYS)}")
    asked = {name: value for name, value in given.items() if value is not None}
    model, emit, more = asked.get("model"), asked.get("emit", True), asked.get("more", {})
    if not (isinstance(model, str) and model):
        raise Fail("model must be the id or ARN of a model")
    if not isinstance(emit, bool):
        raise Fail(f"emit must be true or false, not {emit!r}")
    if not isinstance(more, dict):
        raise Fail("more must be an object of parameters of Converse")
    request: dict[str, Any] = {**more, "modelId": model, "messages": _messages(asked)}
    if "system" in asked:
        request["system"] = _content(asked["system"], "system")
    if inference := {theirs: asked[ours] for ours, theirs in _INFERENCE.items() if ours in asked}:
        stop = inference.get("stopSequences")
        request["inferenceConfig"] = {**inference, **({"stopSequences": [stop]} if isinstance(stop, str) else {})}
    _refuse_objects(request)
    return Asked(request=request, emit=emit)


def _refuse_objects(request: Mapping[str, Any]) -> None:
    """Raises `Fail` for content that names an object in S3.

    Bedrock reads it with the role of the worker, which may read the deployment's bucket: any tenant's payloads.
    """
    stack: list[Any] = [request]
    while stack:
        part = stack.pop()
        if isinstance(part, list):
            stack.extend(part)
        elif isinstance(part, dict):
            if "s3Location" in part:
                raise Fail("s3Location is refused: Bedrock would read it with the role of the worker")
            stack.extend(value for name, value in part.items() if name not in _FREE)


def _messages(asked: Mapping[str, Json]) -> list[Any]:
    if ("prompt" in asked) == ("messages" in asked):
        raise Fail("the input must have one of prompt and messages")
    if "prompt" in asked:
        return [{"role": "user", "content": _content(asked["prompt"], "prompt")}]
    messages = asked["messages"]
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise Fail("messages must be a list of objects with role and content")
    return [{**one, "content": _content(one.get("content"), "content")} for one in messages]


def _content(value: Json, name: str) -> list[Any]:
    """Blocks of content; a text is one."""
    if isinstance(value, str):
        return [{"text": value}]
    if isinstance(value, list):
        return [{"text": block} if isinstance(block, str) else block for block in value]
    raise Fail(f"{name} must be a text or a list of blocks of content")
