"""Server-sent events: a part of a journal as `text/event-stream` for EventSource.

API Gateway buffers answers, so a stream is a chain of short answers. Each ends after its events, and the client
reconnects with the `id` of the last event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fanfold.service.api.response_models import EventView, StreamEnd
from fanfold.service.api.serialization import to_json

MEDIA_TYPE: Final = "text/event-stream"
RETRY_MS: Final = 250
"""How soon a client reconnects after an answer."""
RETRY_UNHELD_MS: Final = 2_000
"""The same after an empty answer that did not wait, because too many calls were waiting."""
RETRY_AFTER_END_MS: Final = 60_000
"""The same after the end, for clients that do not close the stream."""
MAX_BYTES: Final = 1_000_000
"""The most bytes of one answer; the next one continues. Lambda's limit is 6 MB."""


def wanted(accept: str) -> bool:
    """Whether an `Accept` header asks for this media type."""
    return any(part.partition(";")[0].strip().lower() == MEDIA_TYPE for part in accept.split(","))


def stream(events: Sequence[EventView], *, end: StreamEnd | None, held: bool = True) -> str:
    """The events as one answer, at least the first and no more than fit; `end` follows the last of them.

    `held`: the answer has waited for events.
    """
    parts = [f"retry: {RETRY_MS if held or events else RETRY_UNHELD_MS}\n\n"]
    size = 0
    for event in events:
        part = f"id: {event.seq}\nevent: {event.type}\ndata: {to_json(event).decode('ascii')}\n\n"
        size += len(part)
        if size > MAX_BYTES and len(parts) > 1:
            return "".join(parts)
        parts.append(part)
    if end is not None:
        # Without an id, so that a client that reconnects later continues after the last event and sees a redrive.
        parts.append(f"event: end\nretry: {RETRY_AFTER_END_MS}\ndata: {to_json(end).decode('ascii')}\n\n")
    elif not events:
        parts.append(": nothing new yet\n\n")
    return "".join(parts)
