"""Server-sent events: a part of a journal as `text/event-stream`, which EventSource reads and goes on from.

API Gateway buffers answers, so a stream is a chain of short ones: each ends at once when it has told
something, and the client comes again with the `id` of the last event it saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fanfold.service.api.response_models import EventView, StreamEnd
from fanfold.service.api.serialization import to_json

MEDIA_TYPE: Final = "text/event-stream"
RETRY_MS: Final = 250
"""How soon a client comes again after an answer that ended: the pause in a run's story, so a short one."""
RETRY_UNHELD_MS: Final = 2_000
"""The same after an answer without news that nobody waited for: a process with no seat left must not be run down."""
RETRY_AFTER_END_MS: Final = 60_000
"""A client that does not close the stream at its end would otherwise ask for it four times a second, for ever."""
MAX_BYTES: Final = 1_000_000
"""What one answer tells; the next one tells the rest. Lambda hands over at most 6 MB."""


def wanted(accept: str) -> bool:
    """Whether an `Accept` header asks for this media type."""
    return any(part.partition(";")[0].strip().lower() == MEDIA_TYPE for part in accept.split(","))


def stream(events: Sequence[EventView], *, end: StreamEnd | None, held: bool = True) -> str:
    """The events as one answer, at least the first and no more than fit; `end` follows the last of them.

    An answer without events was `held` when it waited for some.
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
        # Without an id: who comes again after the end goes on from the last event, and learns of a redrive.
        parts.append(f"event: end\nretry: {RETRY_AFTER_END_MS}\ndata: {to_json(end).decode('ascii')}\n\n")
    elif not events:
        parts.append(": nothing new yet\n\n")
    return "".join(parts)
