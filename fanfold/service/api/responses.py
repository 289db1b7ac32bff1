"""Converts a handler's answer into an HTTP answer. Answers that are too big for Lambda go through the bucket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from fanfold.engine.ports import Blobs
from fanfold.service.api.serialization import to_json
from fanfold.service.api.views import URL_SECONDS

MAX_ANSWER_BYTES = 5_000_000
"""The longest answer that is sent directly."""
MAX_FRAMED_BYTES = 6_000_000
"""The longest as Lambda counts it. It hands over at most 6,291,556 bytes, of a JSON object in which the answer is a
text, every quote and backslash of it escaped; the rest is room for headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A status and what is said with it: a model, or (`media_type` other than JSON) text.

    `spill_prefix` is where in the bucket a big answer may lie.
    """

    status: int = 200
    content: object
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"
    spill_prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The HTTP answer."""

    status: int
    body: str
    headers: Mapping[str, str]
    media_type: str


async def reply(answer: Answer, blobs: Blobs, *, name: str) -> Reply:
    """Encode an answer. An answer that is too long is stored as `name`, and the reply is a 303 to its presigned URL."""
    if isinstance(answer.content, str):
        body = answer.content
    else:
        data = to_json(answer.content)
        if len(data) > MAX_ANSWER_BYTES or framed(data) > MAX_FRAMED_BYTES:
            ref = await blobs.put(f"{answer.spill_prefix}/answers/{name}", data)
            url = await blobs.presign(ref, seconds=URL_SECONDS)
            return Reply(status=303, body="", headers={"Location": url}, media_type="application/json")
        body = data.decode("ascii")
    return Reply(status=answer.status, body=body, headers=answer.headers, media_type=answer.media_type)


def framed(data: bytes) -> int:
    """The bytes of ASCII JSON as a text within JSON, which is how Lambda's runtime hands it over."""
    if 2 * len(data) <= MAX_FRAMED_BYTES:
        return 2 * len(data)  # JSON has no control characters outside of escapes: no byte becomes more than two
    return len(json.dumps(data.decode("ascii")))
