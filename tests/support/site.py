"""A deployed local stack with the means of its operator, and of a vandal: queues, mappings, the sweeper, the emulator.

Records are read by the product's own store in this process: a hundred runs are one call.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from fanfold import Client
from fanfold.engine.errors import InfrastructureError
from fanfold.engine.ports import Bucket, RunKey
from fanfold.engine.record.messages import DEAD, RESUME
from fanfold.engine.record.run import Run, Status
from fanfold.local import emulator, local_stack
from fanfold.local.local_stack import LocalStack
from fanfold.service.api.run_reader import whole
from fanfold.service.aws_clients import Aws
from fanfold.service.settings import Settings
from fanfold.service.wiring import services

TENANT = "local"
CLASS = "model"
LANE = "normal"
LOOK_SECONDS = 0.2
"""How often a condition is looked at."""

SWEEP_SECONDS = 5.0
"""Here the sweeper's minute is so long. It takes its turns anyway; that only shortens the wait for it."""

TIMED_OUT = "Sandbox.Timedout"
"""The emulator's word for a function that ran out of its time."""


class Site:
    """One deployment. `environ` is what its emulator was started with. Close it at the end."""

    def __init__(self, stack: LocalStack, session: boto3.Session, environ: Mapping[str, str]) -> None:
        self.stack = stack
        self.settings = Settings.from_env(stack.env)
        self.client = Client(stack.api_url, stack.token, retry_for_seconds=120)
        self._environ = environ
        self._swept_at = time.monotonic()
        # A function that is called for the first time takes seconds on a busy machine.
        patient = Config(read_timeout=120, retries={"total_max_attempts": 2})
        self._sqs = session.client("sqs", endpoint_url=stack.endpoint, config=patient)
        self._lambda = session.client("lambda", endpoint_url=stack.endpoint, config=patient)
        self._aws = Aws(session, endpoint_url=stack.endpoint, threads=8)
        self.services = services(self.settings, self._aws)

    def close(self) -> None:
        """Close every connection."""
        self.client.close()
        self._sqs.close()
        self._lambda.close()
        self._aws.close()

    @property
    def state(self) -> Path:
        """The stack's state folder."""
        return Path(self.stack.ledger).parent

    @property
    def ledger(self) -> Path:
        """The file to which every execution of `chaos.effect` appends a line."""
        return Path(self.stack.ledger)

    # --- runs -----------------------------------------------------------------------------------

    def submit(self, runs: Iterable[tuple[str, Any]]) -> list[str]:
        """Submit these workflows with these inputs over HTTP, in as few requests as possible; their ids, in order."""
        results = self.client.submit_many([{"workflow": workflow, "input": given} for workflow, given in runs])
        assert [result for result in results if "run" not in result] == []
        return [result["run"]["id"] for result in results]

    def rows(self, ids: Sequence[str]) -> dict[str, Run]:
        """The rows as they are, by id; without those that could not be read just now."""

        async def read() -> dict[str, Run]:
            found: dict[str, Run] = {}
            for start in range(0, len(ids), 100):
                keys = [RunKey(tenant=TENANT, run_id=run_id) for run_id in ids[start : start + 100]]
                rows = await self.services.runs.get_many(keys, now=self.services.clock.now())
                found |= {key.run_id: run for key, run in rows.items()}
            return found

        with suppress(InfrastructureError):  # the emulator may be starting again: the next look tells
            return asyncio.run(read())
        return {}

    def all(self, ids: Sequence[str], true: Callable[[Run], bool]) -> bool:
        """Whether every one of these rows could be read, and it is true of it."""
        rows = self.rows(ids)
        return len(rows) == len(ids) and all(true(run) for run in rows.values())

    def records(self, ids: Sequence[str]) -> dict[str, Run]:
        """The records whole, with what of them is sealed."""
        rows = self.rows(ids)

        async def read() -> list[Run]:
            return [await whole(self.services, run) for run in rows.values()]

        return {run.id: run for run in asyncio.run(read())}

    def ended(self, ids: Sequence[str], *, seconds: float, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until all of these runs have ended; calls `meanwhile` between looks, and the sweeper in its turn."""

        left = set(ids)

        def all_ended() -> bool:
            meanwhile()
            self.sweep_in_turn()
            left.difference_update(run.id for run in self.rows(sorted(left)).values() if run.terminal)
            return not left

        def what() -> str:
            rows = list(self.rows(sorted(left)).values())
            told = [
                f"{run.id} ({run.workflow}) {run.status}, epoch {run.epoch}, crashes {run.crashes}, "
                f"{run.journal[-1].type} at {run.journal[-1].at:%H:%M:%S}"
                for run in rows[:5]
            ]
            queues = {role: self.holds(role) for role in (LANE, RESUME, DEAD)}
            return f"{len(left)} of {len(ids)} runs have not ended, such as {told}; {queues=}; logs in {self.state}"

        until(all_ended, seconds=seconds, what=what)

    # --- queues ---------------------------------------------------------------------------------

    def purge(self, role: str) -> None:
        """What an operator's purge does: everything in the queue is gone."""
        self._sqs.purge_queue(QueueUrl=self._url(role))

    def holds(self, role: str) -> int:
        """How many messages a queue of the first class holds, in whatever state."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        names += ["ApproximateNumberOfMessagesDelayed"]
        told = self._sqs.get_queue_attributes(QueueUrl=self._url(role), AttributeNames=names)["Attributes"]
        return sum(int(told[name]) for name in names)

    def dead_letters(self) -> set[str]:
        """The runs whose messages were received too often, every one of them; the messages stay."""
        runs: set[str] = set()
        for url in (queues[DEAD] for queues in self.stack.queues.values()):
            taken = []
            while messages := self._sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=120, WaitTimeSeconds=0
            ).get("Messages", ()):
                taken += messages
            for message in taken:
                receipt = message["ReceiptHandle"]
                self._sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=0)
            runs.update(str(json.loads(message["Body"])["run"]) for message in taken)
        return runs

    def repeat(self, role: str, *, messages: int, times: int) -> None:
        """Have each of a queue's `messages` messages there `times` times.

        One may be with a poll of a worker that was killed: it is waited for.
        """
        taken: dict[str, Any] = {}

        def all_taken() -> bool:
            answer = self._sqs.receive_message(
                QueueUrl=self._url(role), MaxNumberOfMessages=10, VisibilityTimeout=120, WaitTimeSeconds=1
            )
            taken.update({message["MessageId"]: message for message in answer.get("Messages", ())})
            return len(taken) == messages

        until(all_taken, seconds=60, what=lambda: f"{len(taken)} of {messages} messages were received")
        for message in taken.values():
            for _ in range(times - 1):
                self._sqs.send_message(QueueUrl=self._url(role), MessageBody=message["Body"], MessageGroupId=TENANT)
            self._sqs.change_message_visibility(
                QueueUrl=self._url(role), ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )

    def _url(self, role: str) -> str:
        return self.stack.queues[CLASS][role]

    def slots(self) -> int:
        """How many queue slots are taken, in all classes."""
        return sum(asyncio.run(self.services.slots.load(name)).depth for name in self.settings.classes)

    def queued(self) -> int:
        """How many runs are queued, by the rows of all that have not ended."""
        active = asyncio.run(self.services.runs.page(TENANT, Bucket.ACTIVE, limit=1000))
        return sum(run.status is Status.QUEUED for run in self.rows([key.run_id for key in active]).values())

    # --- functions ------------------------------------------------------------------------------

    def switch(self, *, workers: bool, dead_letters: bool, class_name: str = CLASS) -> None:
        """The mappings of a class's worker function, and of the dead-letter function, on or off.

        One that was just turned off may still take what comes in the next moment.
        """
        for name, on in {f"worker-{class_name}": workers, "deadletter": dead_letters}.items():
            mappings = self._lambda.list_event_source_mappings(FunctionName=f"{self.stack.functions[name]}:live")
            for mapping in mappings["EventSourceMappings"]:
                if (mapping["State"] == "Enabled") is not on:
                    self._lambda.update_event_source_mapping(UUID=mapping["UUID"], Enabled=on)

    def sweep(self) -> dict[str, Any]:
        """One pass of the deployed sweeper, now; its report."""
        told: dict[str, Any] = self.invoke("sweeper", {})
        return told

    def invoke(self, function: str, event: Mapping[str, Any]) -> Any:
        """What a deployed function answers to an event; it must not fail."""
        failed, told = self._call(function, event)
        assert not failed, told
        return told

    def _call(self, function: str, event: Mapping[str, Any]) -> tuple[bool, Any]:
        answer = self._lambda.invoke(
            FunctionName=self.stack.functions[function], Qualifier="live", Payload=json.dumps(event).encode()
        )
        with answer["Payload"] as body:
            return "FunctionError" in answer, json.loads(body.read())

    def sweep_in_turn(self) -> None:
        """A pass of the sweeper if it is time for one, as its schedule would."""
        if time.monotonic() - self._swept_at > SWEEP_SECONDS:
            failed, told = self._call("sweeper", {})
            # A machine may be too busy for a pass within its time; the next one comes, as it would by its schedule.
            assert not failed or told["errorType"] == TIMED_OUT, told
            self._swept_at = time.monotonic()

    def restart(self) -> None:
        """Stop the emulator by SIGTERM, however long it takes to keep its state, and start it again on that."""
        pid, port = self.stack.pid, self.stack.port
        assert pid is not None
        assert port is not None
        os.killpg(pid, signal.SIGTERM)

        def ended() -> bool:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            return not emulator.is_ours(pid, port, self.state)

        until(ended, seconds=120, what=lambda: f"the emulator {pid} does not stop")
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # functions that ignored the first signal
        self.stack = replace(self.stack, pid=emulator.start(port, self.state, self._environ))
        local_stack.write(self.state, self.stack)


def until(true: Callable[[], bool], *, seconds: float, what: Callable[[], str]) -> None:
    """Look until it is true. Raises AssertionError with `what` when that takes longer."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"after {seconds:g} s: {what()}"
        time.sleep(LOOK_SECONDS)


def worker_pid(run: Run) -> int | None:
    """The process that claimed the run last, as its journal says."""
    for entry in reversed(run.journal):
        if entry.type == "run.claimed" and entry.data is not None:
            return int(str(entry.data["worker"]).rpartition(":")[2])
    return None


def clean_environment() -> dict[str, str]:
    """This process's environment without anything that names another deployment."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("FANFOLD_", "AWS_"))}
