"""An operator's calls of the HTTP API as values: what both clients share.

All may be repeated: cancel, pause and resume by nature, the others because they carry a key.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from fanfold.client.calls import Call, keyed
from fanfold.client.results import Accepted, Run, SignalReceipt

UNCHANGED: Any = object()
"""A fork's input that is the old run's own: null would be an input too."""


def cancel(run_id: str) -> Call[Run]:
    """Cancel a run."""
    return _move(run_id, "cancel")


def pause(run_id: str) -> Call[Run]:
    """Pause a run."""
    return _move(run_id, "pause")


def resume(run_id: str) -> Call[Run]:
    """Let a paused run go on."""
    return _move(run_id, "resume")


def redrive(run_id: str, *, key: str) -> Call[Run]:
    """Let a failed or cancelled run go on."""
    return _move(run_id, "redrive", key=key)


def signal(run_id: str, name: str, payload: Any, *, key: str) -> Call[SignalReceipt]:
    """Give a run a signal."""
    return Call(
        method="POST",
        path=f"v1/runs/{quote(run_id, safe='')}/signals/{quote(name, safe='')}",
        has="seq",
        headers={"content-type": "application/json", **keyed(key)},
        body=json.dumps(payload, allow_nan=False).encode(),
    )


def fork(run_id: str, from_step: str, *, input: Any, version: str | None, key: str) -> Call[Accepted]:
    """Start a new run from a step of an old one."""
    body: dict[str, Any] = {"from_step": from_step}
    if input is not UNCHANGED:
        body["input"] = input
    if version is not None:
        body["version"] = version
    return Call(
        method="POST",
        path=f"v1/runs/{quote(run_id, safe='')}/fork",
        has="id",
        headers={"content-type": "application/json", **keyed(key)},
        body=json.dumps(body, allow_nan=False).encode(),
    )


def _move(run_id: str, move: str, *, key: str | None = None) -> Call[Run]:
    headers = {} if key is None else keyed(key)
    return Call(method="POST", path=f"v1/runs/{quote(run_id, safe='')}/{move}", has="id", headers=headers)
