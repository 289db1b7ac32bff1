"""Suspects in processes of their own: what a poisonous run kills is a child that works on nothing else (R7).

The parent hands a message to `python -m functions.runtime.worker.isolation` and learns from its exit status
what becomes of the message; a child that dies leaves the run's lease to run out.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import replace

from functions.adapters.sqs import received
from functions.engine.message import QueueName, Received
from functions.runtime.settings import Settings
from functions.runtime.taskmodules import load_tasks
from functions.runtime.telemetry import configure, flush, logger
from functions.runtime.wiring import services
from functions.runtime.worker.attempts import Attempts
from functions.runtime.worker.keeper import Keeper
from functions.runtime.worker.naming import worker_name
from functions.runtime.worker.runner import Back, Disposition, Done, Runner
from functions.runtime.workflows import WorkflowCache

DONE, AGAIN = 0, 10
"""The child's exit statuses; any other is a death."""


class Isolation:
    """Children at work, one message each."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._children: set[asyncio.subprocess.Process] = set()
        self._stopped = False

    async def handle(self, message: Received) -> Disposition:
        """Work on one message in a child process."""
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __spec__.name,
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, **self._settings.to_env()},
        )
        self._children.add(child)
        if self._stopped:
            # The order to stop came while it was being started.
            child.terminate()
        try:
            await child.communicate(_dumped(message))
        finally:
            self._children.discard(child)
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode == DONE:
            return Done()
        if child.returncode != AGAIN:
            logger().error(
                "a suspect run's process died", extra={"status": child.returncode, "body": message.body[:500]}
            )
        return Back(seconds=1)

    def stop(self) -> None:
        """Tell the children to let their runs go."""
        self._stopped = True
        for child in self._children:
            if child.returncode is None:
                child.terminate()


def _dumped(message: Received) -> bytes:
    facts = {
        "queue": [message.queue.class_name, message.queue.role],
        "message_id": message.message_id,
        "receipt": message.receipt,
        "body": message.body,
        "receives": message.receives,
    }
    return json.dumps(facts).encode()


def _loaded(data: bytes) -> Received:
    facts = json.loads(data)
    class_name, role = facts["queue"]
    return received(
        QueueName(class_name=class_name, role=role),
        body=facts["body"],
        message_id=facts["message_id"],
        receipt=facts["receipt"],
        receives=facts["receives"],
    )


async def _child(message: Received) -> Disposition:
    settings = replace(Settings.from_env(os.environ), concurrency=1)
    configure(settings)
    load_tasks()
    wired = services(settings)
    runner = Runner(
        wired,
        WorkflowCache(wired.catalog, settings.classes),
        Attempts(settings, wired.clock),
        worker=worker_name(),
    )
    # A terminal's Ctrl-C reaches the children as well as the parent.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: runner.hurry(wired.clock.now()))
    async with Keeper(wired, [message]):
        return await runner.handle(message)


def main() -> None:
    """The child: one message from standard input, its disposition as exit status."""
    what = asyncio.run(_child(_loaded(sys.stdin.buffer.read())))
    flush()
    sys.stdout.flush()
    # Not sys.exit: a task's thread that can't be stopped would keep the child alive.
    os._exit(DONE if isinstance(what, Done) else AGAIN)


if __name__ == "__main__":
    main()
