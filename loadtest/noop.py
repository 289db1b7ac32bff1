"""A server that does nothing: `python -m loadtest.noop`. It shows what the driver itself can do.

It says its address as a JSON line, and when its standard input ends how many requests it answered.
"""

from __future__ import annotations

import asyncio
import json
import sys

HOST = "127.0.0.1"
BODY = b'{"status":"ok"}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
END = b"\r\n\r\n"


class Nothing(asyncio.Protocol):
    """Answers every request without a body the same, as soon as its head is there."""

    answered = 0

    def __init__(self) -> None:
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connects."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Perhaps one request more, or several."""
        *heads, self._head = (self._head + data).split(END)
        Nothing.answered += len(heads)
        self._transport.write(ANSWER * len(heads))


async def run() -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Nothing, HOST, 0)
    host, port = server.sockets[0].getsockname()
    print(json.dumps({"url": f"http://{host}:{port}"}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    print(json.dumps({"answered": Nothing.answered}), flush=True)


if __name__ == "__main__":
    asyncio.run(run())
