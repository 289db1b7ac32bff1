"""Writes every request of a locustfile as a JSON line. A locustfile imports this module first."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from locust import HttpUser, events

FACTS: dict[str, Any] = json.loads(os.environ.get("FANFOLD_LOAD", "{}"))
"""What the scenario told this locustfile."""

HEADERS = {"Authorization": f"Bearer {os.environ.get('FANFOLD_TOKEN', '')}"}

_raw = Path(FACTS["raw"]).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115  # open as long as Locust runs


@events.request.add_listener
def _record(
    name: str, response_time: float, response: Any, exception: BaseException | None, context: Any, **_: Any
) -> None:
    status = getattr(response, "status_code", 0) or 0
    seconds = response_time / 1000
    row = {
        "name": name,
        "begun": time.time() - seconds,
        "seconds": seconds,
        "status": status,
        "error": "" if exception is None else repr(exception)[:200],
        "facts": dict(context or {}),
    }
    _raw.write(json.dumps(row) + "\n")


class Caller(HttpUser):
    """A user of the API with the scenario's token."""

    abstract = True

    def submit(self, workflow: str, given: Any = None, *, tag: str, name: str = "submit") -> Any:
        """One `POST /v1/runs`; gives the response."""
        key, _, value = tag.partition("=")
        body = {"workflow": workflow, "input": given, "tags": {key: value}}
        return self.client.post("/v1/runs", json=body, headers=HEADERS, name=name)

    def follow(self, run_id: str, *, name: str = "follow") -> Any:
        """The run once it has ended, by long polls; gives the last response."""
        while True:
            answer = self.client.get(f"/v1/runs/{run_id}?wait=20", headers=HEADERS, name=name)
            if answer.status_code != 200 or answer.json()["status"] in ("succeeded", "failed", "cancelled"):
                return answer
