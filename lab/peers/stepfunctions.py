"""The diamond as a native state machine of Step Functions Standard with Lambda tasks, on the emulator ours runs on."""

from __future__ import annotations

import io
import json
import time
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from botocore.config import Config

from fanfold.local.local_stack import LocalStack
from loadtest.access import endpoint_of, session_of

ROLE = "arn:aws:iam::000000000000:role/load"
"""The emulator asks nobody for permission."""
ECHO = "def handler(event, context):\n    print('done')\n    return event\n"
"""A task that does nothing, as ours do nothing. It says so: the emulator keeps a function that says nothing waiting."""
LOOK_SECONDS = 0.02
MOST_CONNECTIONS = 64


def definition(function_arn: str) -> Mapping[str, Any]:
    """`seed`, then `left` and `right` at the same time, then `combine`: five transitions."""

    def state(**more: Any) -> dict[str, Any]:
        return {"Type": "Task", "Resource": function_arn, **more}

    branches = [{"StartAt": name, "States": {name: state(End=True)}} for name in ("left", "right")]
    both = {"Type": "Parallel", "Branches": branches, "Next": "combine"}
    return {"StartAt": "seed", "States": {"seed": state(Next="both"), "both": both, "combine": state(End=True)}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One that has ended: how, and the seconds between its own start and end."""

    status: str
    seconds: float


class Machine:
    """A state machine; safe to use from several threads."""

    def __init__(self, client: Any, arn: str) -> None:
        self._client = client
        self._arn = arn

    def run(self, *, within_seconds: float = 60.0) -> Execution:
        """Start one execution and look until it has ended. Raises TimeoutError when it does not."""
        arn = self._client.start_execution(stateMachineArn=self._arn, name=uuid.uuid4().hex, input="{}")["executionArn"]
        ends_at = time.monotonic() + within_seconds
        while (told := self._client.describe_execution(executionArn=arn))["status"] == "RUNNING":
            if time.monotonic() > ends_at:
                raise TimeoutError(f"{arn} had not ended after {within_seconds:g} s")
            time.sleep(LOOK_SECONDS)
        return Execution(status=told["status"], seconds=(told["stopDate"] - told["startDate"]).total_seconds())

    def ended(self) -> dict[str, int]:
        """How many executions there are, by status: what the service counts."""
        found: dict[str, int] = {}
        for page in self._client.get_paginator("list_executions").paginate(stateMachineArn=self._arn):
            for execution in page["executions"]:
                found[execution["status"]] = found.get(execution["status"], 0) + 1
        return found


@contextmanager
def machine(stack: LocalStack) -> Iterator[Machine]:
    """The state machine and its function, made for the length of the block."""
    boto, endpoint = session_of(stack), endpoint_of(stack)
    config = Config(max_pool_connections=MOST_CONNECTIONS, parameter_validation=False)
    functions = boto.client("lambda", endpoint_url=endpoint)
    states = boto.client("stepfunctions", endpoint_url=endpoint, config=config)
    name = f"load-{uuid.uuid4().hex[:8]}"
    function = functions.create_function(
        FunctionName=name,
        Runtime="python3.13",
        Role=ROLE,
        Handler="echo.handler",
        Code={"ZipFile": _zipped({"echo.py": ECHO})},
        MemorySize=1_024,
        Timeout=30,
    )
    try:
        functions.get_waiter("function_active_v2").wait(FunctionName=name)
        arn = states.create_state_machine(
            name=name, definition=json.dumps(definition(function["FunctionArn"])), roleArn=ROLE, type="STANDARD"
        )["stateMachineArn"]
        try:
            yield Machine(states, arn)
        finally:
            states.delete_state_machine(stateMachineArn=arn)
    finally:
        functions.delete_function(FunctionName=name)
        for client in (functions, states):
            client.close()


def _zipped(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()
