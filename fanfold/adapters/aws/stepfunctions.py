"""Distributed maps, as executions of a state machine in Step Functions (see `fanfold.cdk.fanout`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from fanfold.adapters.aws.calls import Call, Client, Refused
from fanfold.adapters.message_codec import fairness_group
from fanfold.engine.errors import Unavailable
from fanfold.engine.language.maps import ANSWERS, THROTTLED
from fanfold.engine.ports import Execution

RUNNING: Final = "RUNNING"
SUCCEEDED: Final = "SUCCEEDED"


class StepFunctionsFanOut:
    """A `FanOut`. `call` carries out the calls (the `Aws` object); `machines` has each class's state machine ARN.

    `most` has, for classes with a bound, the most batches an execution works on at once.
    """

    def __init__(self, call: Call, machines: Mapping[str, str], most: Mapping[str, int] = MappingProxyType({})) -> None:
        self._call = call
        self._machines = machines
        self._most = most

    async def start(self, execution: Execution) -> bool:
        """See `FanOut.start`. A name is remembered for 90 days after its execution's end."""
        try:
            await self._call(
                Client.STEP_FUNCTIONS,
                "start_execution",
                stateMachineArn=self._machine(execution),
                name=execution.name,
                input=execution_input(self._bounded(execution)),
            )
        except Refused as refusal:
            if not refusal.says("ExecutionAlreadyExists"):
                raise
            return False
        return True

    async def going(self, execution: Execution) -> bool:
        """See `FanOut.going`."""
        try:
            answer = await self._call(Client.STEP_FUNCTIONS, "describe_execution", executionArn=self._arn(execution))
        except Refused as refusal:
            if not refusal.says("ExecutionDoesNotExist"):
                raise
            return False
        return bool(answer["status"] == RUNNING)

    async def throttled(self, execution: Execution) -> bool:
        """See `FanOut.throttled`."""
        try:
            answer = await self._call(Client.STEP_FUNCTIONS, "describe_execution", executionArn=self._arn(execution))
        except Refused as refusal:
            if not refusal.says("ExecutionDoesNotExist"):
                raise
            return False
        if answer["status"] != SUCCEEDED or "output" not in answer:
            return False
        answers = json.loads(answer["output"]).get(ANSWERS, ())
        # Of a batch whose items were worked on one by one there is a word of each.
        return any(THROTTLED in (words if isinstance(words, list) else [words]) for words in answers)

    async def stop(self, execution: Execution) -> None:
        """See `FanOut.stop`."""
        try:
            await self._call(
                Client.STEP_FUNCTIONS,
                "stop_execution",
                executionArn=self._arn(execution),
                cause="the run has ended",
            )
        except Refused as refusal:
            # Ended already: AWS answers nothing of the kind, an emulator does.
            if not refusal.says("ExecutionDoesNotExist", "ValidationException"):
                raise

    def _bounded(self, execution: Execution) -> Execution:
        most = self._most.get(execution.class_name, execution.batches_at_once)
        return replace(execution, batches_at_once=min(execution.batches_at_once, most))

    def _machine(self, execution: Execution) -> str:
        if execution.class_name not in self._machines:
            raise Unavailable(f"class {execution.class_name!r} has no state machine here")
        return self._machines[execution.class_name]

    def _arn(self, execution: Execution) -> str:
        return f"{self._machine(execution).replace(':stateMachine:', ':execution:')}:{execution.name}"


def execution_input(execution: Execution) -> str:
    """What the state machine is given: how to find the run, and where its batches are listed. No payload."""
    return json.dumps(
        {
            "tenant": execution.tenant,
            "group": fairness_group(execution.tenant),
            "run": execution.run_id,
            "submission": execution.submission,
            "class": execution.class_name,
            "step": execution.step,
            "try": execution.try_number,
            "batches": execution.batches,
            "batches_at_once": execution.batches_at_once,
        },
        separators=(",", ":"),
    )
