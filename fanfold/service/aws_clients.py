"""The one place that makes AWS clients.

The SDK is imported when the first client is made, not with this module.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

from fanfold.adapters.aws.calls import Client, translated
from fanfold.engine.errors import Unavailable
from fanfold.service.telemetry.aws_usage import spend

T = TypeVar("T")

CONNECT_SECONDS: Final = 2
READ_SECONDS: Final = 5
RECEIVE_SECONDS: Final = 25
"""A receive waits up to 20 s for its answer."""
POLLING_THREADS: Final = 8
"""Receives wait in threads of their own (a class has up to five lanes, and `resume`): no commit waits behind them."""

_ASKED_AT: Final = "fanfold_asked_at"
"""In a request's context: when it was made, on this machine's wall clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Profile:
    """How a client calls: with up to three tries all time-outs together stay below 25 s (R11)."""

    service: str
    tries: int
    read_seconds: int = READ_SECONDS


_PROFILES: Final[Mapping[Client, _Profile]] = {
    Client.DYNAMODB: _Profile(service="dynamodb", tries=3),
    Client.DYNAMODB_ONCE: _Profile(service="dynamodb", tries=1),
    Client.SQS: _Profile(service="sqs", tries=3),
    Client.SQS_ONCE: _Profile(service="sqs", tries=1),
    Client.SQS_RECEIVE: _Profile(service="sqs", tries=1, read_seconds=RECEIVE_SECONDS),
    Client.S3: _Profile(service="s3", tries=3),
    Client.STEP_FUNCTIONS: _Profile(service="stepfunctions", tries=3),
}


class Aws:
    """AWS clients and the threads that wait for them: a `Call` for the adapters.

    `session` is a boto3 session (absent: botocore's own is made); without `endpoint_url` botocore's own rules
    hold, `AWS_ENDPOINT_URL` included. `wall` is the wall clock in seconds since the epoch that AWS's
    is compared with. Safe to use from several threads and event loops. `close` it at the end.
    """

    def __init__(
        self,
        session: Any = None,
        *,
        endpoint_url: str | None = None,
        threads: int = 32,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._create: Callable[..., Any] | None = None if session is None else session.client
        self._endpoint_url = endpoint_url
        self._threads = threads
        self._wall = wall
        self._has_own_endpoint = bool(endpoint_url or os.environ.get("AWS_ENDPOINT_URL"))
        self._clients: dict[Client, Any] = {}
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="aws")
        self._pollers = ThreadPoolExecutor(POLLING_THREADS, thread_name_prefix="aws-poll")
        self.calls: Counter[str] = Counter()
        self.clock_offset_seconds: float | None = None

    async def __call__(
        self, client: Client, operation: str, /, *, in_time: Callable[[], bool] | None = None, **parameters: Any
    ) -> Any:
        """One operation of one client, in a thread; see `Call`."""
        executor = self._pollers if client is Client.SQS_RECEIVE else self._executor
        return await self._in(executor, functools.partial(self._invoke, client, operation, parameters, in_time))

    async def call(self, client_method: Callable[..., T], /, **parameters: Any) -> T:
        """A bound method of a client made by `client`, or any function that blocks on AWS, in a thread; same errors."""
        return await self._in(self._executor, functools.partial(client_method, **parameters))

    def client(self, client: Client) -> Any:
        """A client, made at its first use (which takes tens of milliseconds) and kept."""
        with self._lock:
            if client not in self._clients:
                self._clients[client] = self._make(_PROFILES[client])
            return self._clients[client]

    def close(self) -> None:
        """Wait for the calls in flight, then close every connection. Nothing can be called afterwards."""
        self._executor.shutdown()
        self._pollers.shutdown()
        for client in self._clients.values():
            client.close()

    async def _in(self, executor: ThreadPoolExecutor, function: Callable[[], T]) -> T:
        with translated():
            return await asyncio.get_running_loop().run_in_executor(executor, function)

    def _invoke(
        self,
        client: Client,
        operation: str,
        parameters: dict[str, Any],
        in_time: Callable[[], bool] | None = None,
    ) -> Any:
        method = getattr(self.client(client), operation)
        if in_time is not None and not in_time():
            raise Unavailable(f"{operation} was not called: it would have come too late")
        response = spend(client, operation, method, parameters)
        if isinstance(response, dict) and hasattr(response.get("Body"), "read"):
            with response["Body"] as body:
                response["Body"] = body.read()
        return response

    def _make(self, profile: _Profile) -> Any:
        from fanfold.service.botocore_session import Config, client_factory

        if self._create is None:
            self._create = client_factory()
        client = self._create(
            profile.service,
            endpoint_url=self._endpoint_url,
            config=Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=profile.read_seconds,
                # Counted with the first try, whatever AWS_MAX_ATTEMPTS says.
                retries={"mode": "standard", "total_max_attempts": profile.tries},
                max_pool_connections=max(self._threads, POLLING_THREADS),
                # Our own code makes every parameter; checking them costs a fifth of a call's CPU.
                parameter_validation=False,
                # botocore composes its own anew for each request, which costs an eighth of a call's CPU.
                user_agent="fanfold",
                signature_version="s3v4" if profile.service == "s3" else None,
                # An endpoint of one's own seldom has a host name per bucket. On AWS botocore would sign URLs for S3's
                # global host, which knows a bucket of another region only a day after it was made, or never.
                s3={"addressing_style": "path" if self._has_own_endpoint else "virtual"},
            ),
        )
        events = client.meta.events
        events.register(f"request-created.{profile.service}", self._note_request)
        events.register(f"response-received.{profile.service}", self._compare_clocks)
        return client

    def _note_request(self, operation_name: str, request: Any, **_: Any) -> None:
        request.context[_ASKED_AT] = self._wall()
        with self._lock:
            self.calls[operation_name] += 1

    def _compare_clocks(
        self, response_dict: Mapping[str, Any] | None, context: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        date = None if response_dict is None else response_dict["headers"].get("Date")
        if date is None:
            return
        try:
            seconds = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return  # a proxy's fancy: no estimate from this answer, the last one stands
        # The answer was given at some time since it was asked for: a poll's tells little, nor does one that lay here
        # while this process was frozen. What was known stands as far as it agrees. The header is cut to the second;
        # its middle is at most half a second off.
        now = self._wall()
        least, most = seconds + 0.5 - now, seconds + 0.5 - (context or {}).get(_ASKED_AT, now)
        self.clock_offset_seconds = min(max(self.clock_offset_seconds or 0.0, least), most)
