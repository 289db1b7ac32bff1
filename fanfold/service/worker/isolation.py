"""Suspects in processes of their own: what a poisonous run kills is a child that works on nothing else (R7).

The parent hands a message to `python -m fanfold.service.worker.isolation` and learns from its exit status, and
its last word, what becomes of the message; a child that dies leaves the run's lease to run out.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import replace

from fanfold.adapters.aws.sqs import received
from fanfold.engine.record.messages import QueueName, Received
from fanfold.service.process_environment import ProcessEnvironment
from fanfold.service.settings import Settings
from fanfold.service.task_modules import load_tasks
from fanfold.service.telemetry.reporting import configure, flush, logger
from fanfold.service.wiring import services
from fanfold.service.worker.dispositions import Ack, Disposition, Redeliver
from fanfold.service.worker.heartbeat import Pulse, beat, say
from fanfold.service.worker.message_handler import MessageHandler
from fanfold.service.worker.stop_signals import StopSignals
from fanfold.service.worker.task_runner import TaskRunner
from fanfold.service.worker.visibility_extender import VisibilityExtender, visibility_seconds
from fanfold.service.worker.worker_name import worker_name
from fanfold.service.workflow_cache import WorkflowCache

DONE, AGAIN = 0, 10
"""The child's exit statuses; any other is a death. With `AGAIN` its last word is in how many seconds."""

START_SECONDS = 300.0
"""How long a child may take until its loop runs: it imports every module of tasks before."""


class Isolation:
    """Children at work, one message each."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._surroundings = ProcessEnvironment()
        self._children: set[asyncio.subprocess.Process] = set()
        self._stopped = False

    async def handle(self, message: Received) -> Disposition:
        """Work on one message in a child process.

        One whose loop stands still for longer than its lease lasts has lost its run, and is killed.
        """
        pulse = Pulse(first_seconds=START_SECONDS, seconds=silence_seconds(self._settings))
        try:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", __spec__.name, str(pulse.child_end)),
                stdin=asyncio.subprocess.PIPE,
                env={**self._surroundings.environ, **self._settings.to_env()},
                cwd=self._surroundings.folder,
                pass_fds=(pulse.child_end,),
            )
            pulse.listen()
            return await self._wait_for(child, message, pulse)
        finally:
            pulse.close()

    async def _wait_for(self, child: asyncio.subprocess.Process, message: Received, pulse: Pulse) -> Disposition:
        self._children.add(child)
        if self._stopped:
            # The order to stop came while it was being started.
            child.terminate()
        talk = asyncio.create_task(child.communicate(_dumped(message)))
        silence = asyncio.create_task(pulse.until_silent())
        try:
            await asyncio.wait({talk, silence}, return_when=asyncio.FIRST_COMPLETED)
            if stood_still := not talk.done():
                logger().error("a suspect run's process stood still and is killed", extra={"body": message.body[:500]})
                child.kill()
            await talk
        finally:
            silence.cancel()
            talk.cancel()
            self._children.discard(child)
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode == DONE:
            return Ack()
        if child.returncode == AGAIN and (seconds := pulse.last_word()).isdecimal():
            return Redeliver(seconds=int(seconds))
        if child.returncode == -signal.SIGTERM and self._stopped:
            return Redeliver(seconds=1)  # it was told to stop before it could hear of it: nothing had begun
        logger().error("a suspect run's process died", extra={"status": child.returncode, "body": message.body[:500]})
        # The lease of one that died at work has to run out: a message that comes before is only handed back again.
        return Redeliver(seconds=1 if stood_still else visibility_seconds(self._settings))

    def stop(self) -> None:
        """Tell the children to let their runs go."""
        self._stopped = True
        for child in self._children:
            if child.returncode is None:
                child.terminate()


def silence_seconds(settings: Settings) -> float:
    """How long a child may say nothing: its run's lease has ended for everybody by then."""
    return visibility_seconds(settings)


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


async def _child(message: Received, pulse: int) -> Disposition:
    settings = replace(Settings.from_env(os.environ), concurrency=1)
    configure(settings)
    load_tasks(settings, secrets=True)
    wired = services(settings)
    runner = MessageHandler(
        wired,
        WorkflowCache(wired.catalog, settings.classes, aside=wired.aside),
        TaskRunner(settings, wired.clock),
        worker=worker_name(),
    )
    loop, stops = asyncio.get_running_loop(), StopSignals()

    def stop() -> None:
        runner.hurry(wired.clock.now())
        loop.call_later(settings.drain_seconds, runner.break_off)

    # A terminal's Ctrl-C reaches the children as well as the parent.
    stops.listen(stop)
    beating = asyncio.create_task(beat(pulse, every_seconds=silence_seconds(settings) / 10))
    try:
        async with VisibilityExtender(wired, [message]):
            return await runner.handle(message)
    finally:
        beating.cancel()


def main() -> None:
    """The child: one message from standard input, its disposition as exit status."""
    message, pulse = _loaded(sys.stdin.buffer.read()), int(sys.argv[1])
    # Neither asyncio.run nor sys.exit: a task that can't be stopped would keep the child alive.
    what = asyncio.Runner().run(_child(message, pulse))
    flush()
    if isinstance(what, Redeliver):
        say(pulse, str(what.seconds))
    os._exit(DONE if isinstance(what, Ack) else AGAIN)


if __name__ == "__main__":
    main()
