"""What the two clients share: how a request is made, when it is repeated, how long one waits."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from fanfold.client import calls
from fanfold.client.calls import Call
from fanfold.client.errors import NotFanfold, NotReachable
from fanfold.client.results import BatchResult, Registration, Run

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

QUICK_SECONDS = 1.0
"""A held request that comes back empty sooner than this was not held (the service is short of waiters)."""


class Session:
    """What both clients are made of, whatever way they wait. Raises ValueError for what is no address or no token."""

    def __init__(self, url: str, token: str | None, *, patience_seconds: float) -> None:
        check_address(url)
        self.url = url.rstrip("/") + "/"
        self.patience_seconds = patience_seconds
        self._headers = {"accept": "application/json"}
        if token:
            if not (token.isascii() and token.isprintable() and " " not in token):
                raise ValueError("a token is visible ASCII characters without spaces")
            self._headers["authorization"] = f"Bearer {token}"

    def _options(self) -> dict[str, Any]:
        # httpx takes a third of a second to import, and whoever only imports this package never needs it.
        import httpx

        return {
            "headers": self._headers,
            "timeout": httpx.Timeout(calls.READ_TIMEOUT_SECONDS, connect=5.0),
            "trust_env": not _is_local(self.url),  # a proxy can't reach this machine's own addresses
            "follow_redirects": True,  # answers over 5 MB come from the bucket
        }

    def _request(self, call: Call[Any]) -> dict[str, Any]:
        return {
            "method": call.method,
            "url": self.url + call.path,
            "params": dict(call.query) or None,
            "headers": dict(call.headers),
            "content": call.body,
        }

    def _pause(self, attempt: int, *, since: float, answer: httpx.Response | None) -> float | None:
        stated = calls.seconds_of(answer.headers.get("retry-after")) if answer is not None else None
        return calls.pause_before_repeat(
            attempt,
            retry_after_seconds=stated,
            spent_seconds=time.monotonic() - since,
            patience_seconds=self.patience_seconds,
            chance=random.random(),
        )

    def _pause_of_batch(self, results: list[BatchResult], attempt: int, *, since: float) -> float | None:
        """Seconds until a batch is to be repeated as a whole; None when nothing in it asks for that, or it is too late.

        Repeating is safe: the keys make what was accepted a replay.
        """
        again = [result["problem"] for result in results if result["status"] in calls.REPEATED]
        if not again:
            return None
        return calls.pause_before_repeat(
            attempt,
            retry_after_seconds=max((problem.get("retry_after", 0) for problem in again), default=0) or None,
            spent_seconds=time.monotonic() - since,
            patience_seconds=self.patience_seconds,
            chance=random.random(),
        )

    def _not_reachable(self, error: Exception) -> NotReachable:
        return NotReachable(f"no answer from {self.url}: {str(error) or type(error).__name__}")

    def _astray(self, error: Exception) -> NotFanfold:
        return NotFanfold(f"{error}: is {self.url} a Fanfold API's address?")


def comes_again(answer: httpx.Response) -> bool:
    """Whether an answer asks to come again."""
    return calls.comes_again(answer.status_code, answer.headers.get("content-type"))


def _is_local(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def check_address(url: str) -> None:
    """Raises ValueError, one sentence, for what can't be the address of an API."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket that is not closed
        sound = False
    if not sound or not url.isprintable() or " " in url or parts.query or parts.fragment:
        raise ValueError(f"{url[:200]!r} is no API's address: https:// (or http://), a host and perhaps a path")


def value_of(call: Call[T], answer: httpx.Response) -> T:
    """What an answer carries; raises what `calls.value_of` does."""
    return calls.value_of(
        call,
        url=str(answer.url.copy_with(query=None)).removesuffix(call.path),
        status=answer.status_code,
        body=answer.content,
        retry_after=answer.headers.get("retry-after"),
    )


def registration(document: Mapping[str, Any] | str | bytes, name: str | None) -> Call[Registration]:
    """A document as it is given: a mapping goes as JSON, text as the YAML it is (JSON is YAML)."""
    if isinstance(document, Mapping):
        stated = document.get("name")
        return calls.apply(_chosen(name, stated), json.dumps(document, allow_nan=False), media_type="application/json")
    text = document.encode("utf-8") if isinstance(document, str) else document
    stated = None
    if name is None:
        # The service's own parser, so that both find the same name.
        from fanfold.text.document_text import MalformedText, from_text

        try:
            parsed = from_text(text)
        except MalformedText as error:
            raise ValueError(f"the document is not YAML: {error}") from error
        stated = parsed.get("name") if isinstance(parsed, dict) else None
    return calls.apply(_chosen(name, stated), text, media_type="application/yaml")


def _chosen(name: str | None, stated: object) -> str:
    chosen = name or stated
    if not isinstance(chosen, str):
        raise ValueError("the document has no `name`")
    return chosen


def batches(runs: Iterable[Mapping[str, Any]], key: str) -> Iterator[tuple[list[Mapping[str, Any]], str]]:
    """The runs a hundred at a time, each hundred with a key of its own: the first with `key` itself."""
    rest = iter(runs)
    for number in itertools.count():
        batch = list(itertools.islice(rest, calls.BATCH))
        if not batch:
            return
        # No run's own key: those of the first hundred end at `key/99`.
        yield batch, f"{key}/{number * calls.BATCH}" if number else key


def merged(before: list[BatchResult], after: list[BatchResult]) -> list[BatchResult]:
    """The results of a batch that was repeated: what was accepted before stays as it was told first."""
    return [old if "run" in old else new for old, new in zip(before or after, after, strict=True)]


def hold(begin: float, timeout: float | None) -> int:
    """Seconds the next read may be held: never past the caller's own timeout."""
    if timeout is None:
        return calls.LONGEST_WAIT_SECONDS
    left = timeout - (time.monotonic() - begin)
    return int(min(calls.LONGEST_WAIT_SECONDS, max(0.0, left)))


def check_time(run: Run, begin: float, timeout: float | None) -> None:
    """Raises TimeoutError when the caller's timeout has passed."""
    if timeout is not None and time.monotonic() - begin >= timeout:
        raise TimeoutError(f"run {run['id']} is still {run['status']} after {timeout:g} s")
