"""What a browser's EventSource does with a stream: WHATWG HTML, "Server-sent events", sections 9.2.5 and 9.2.6."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Connect = Callable[[dict[str, str]], Awaitable[str]]
"""Asks with these headers, gives the body of an answer that was 200 and `text/event-stream`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """An event as a page's listener gets it."""

    type: str
    data: str
    last_event_id: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


@dataclass(slots=True)
class EventSource:
    """The state that outlives a connection: where to go on, and how soon (ms)."""

    last_event_id: str = ""
    retry_ms: int = 3_000
    connections: int = 0
    pauses_ms: list[int] = field(default_factory=list)

    def read(self, body: str) -> Iterator[Message]:
        """The events of one connection's body, to its end; what is cut off there is no event."""
        text = body.removeprefix("\ufeff")
        lines = re.split("\r\n|\n|\r", text)
        kind, data, event_id = "", "", self.last_event_id
        # The part after the last line end is an unfinished line.
        for line in lines[:-1]:
            if line == "":
                self.last_event_id = event_id
                if data:
                    yield Message(type=kind or "message", data=data[:-1], last_event_id=event_id)
                kind, data = "", ""
                continue
            name, colon, value = line.partition(":")
            if not name and colon:
                continue  # a comment
            value = value.removeprefix(" ")
            if name == "event":
                kind = value
            elif name == "data":
                data += value + "\n"
            elif name == "id" and "\0" not in value:
                event_id = value
            elif name == "retry" and value.isascii() and value.isdigit():
                self.retry_ms = int(value)

    async def listen(self, connect: Connect) -> AsyncIterator[Message]:
        """Events over as many connections as it takes, until the listener goes away."""
        while True:
            headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
            if self.last_event_id:
                headers["Last-Event-ID"] = self.last_event_id
            self.connections += 1
            for message in self.read(await connect(headers)):
                yield message
            self.pauses_ms.append(self.retry_ms)
