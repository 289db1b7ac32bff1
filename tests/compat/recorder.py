"""Plays runs into every state a deployment can find them in, and writes down what is stored and under way there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
from moto import mock_aws

from fanfold.adapters import message_codec
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import dump
from fanfold.engine.record.messages import Envelope, Message, QueueName, first_version
from fanfold.engine.record.run import ForkOrigin, Run, Slot, Status
from fanfold.engine.rules.events import PauseAsked, RedriveAsked, Signalled
from fanfold.service.api.control import Control
from fanfold.service.api.forking import Forker
from fanfold.service.version import VERSION
from fanfold.service.workflow_cache import WorkflowCache
from tests.compat.bench import LANE, RESUMING, TENANT, Bench, Tapped, orders_of
from tests.compat.recording import Expected, Recording, to_hex, write
from tests.support.faults import Faulty

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
LATER = {"max_attempts": 3, "backoff": "60s", "jitter": "none"}
"""Far enough away for a run to be let go until then."""

DIAMOND = {
    "name": "diamond",
    "steps": {
        "seed": {"task": "core.echo", "input": "${input}"},
        "left": {"task": "core.echo", "needs": ["seed"], "input": "left of ${steps.seed.output}"},
        "right": {"task": "core.echo", "needs": ["seed"], "input": "right of ${steps.seed.output}"},
        "combine": {"task": "core.collect", "needs": ["left", "right"]},
    },
    "output": "${steps.combine.output}",
}
DIAMOND_OUTPUT = {"left": "left of it", "right": "right of it"}


class Play:
    """One state in the making."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.queue = Tapped(bench.services.queue)
        bench.services = replace(bench.services, queue=self.queue)
        self.messages: list[tuple[QueueName, str]] = []
        self.orders: list[dict[str, Any]] = []
        self.moves: list[list[Any]] = []
        self.ends: dict[str, tuple[str, Any]] = {}
        self.resume_at = START + timedelta(minutes=1)
        self._numbers = 0

    async def accept(
        self, workflow: Workflow, given: Any = "it", *, row: bool = True, origin: ForkOrigin | None = None
    ) -> Envelope:
        """Accept a run as the API does: place, message (which the caller keeps or loses), row."""
        self._numbers += 1
        services, now = self.bench.services, self.bench.clock.now()
        await services.slots.reserve("model", now=now)
        envelope = Envelope(
            tenant=TENANT,
            run_id=f"r{self._numbers:025d}",
            submission=services.ids.token(),
            workflow=workflow.name,
            workflow_version=workflow.version,
            class_name="model",
            lane="normal",
            input=given,
            tags={"team": "search"},
            request_hash="ab" * 32,
            accepted_at=now,
            deadline=now + timedelta(seconds=workflow.timeout_seconds),
            slot=Slot(shard=0, hour=int(now.timestamp()) // 3600),
            origin=origin,
        )
        if row:
            await self.bench.create(replace(first_version(envelope), write_id=services.ids.token()))
        return envelope

    def keep(self, message: Message, queue: QueueName = LANE) -> None:
        """This message is under way."""
        self.messages.append((queue, message_codec.encode(message)))

    def keep_last(self) -> None:
        """So is what was sent last."""
        queue, message = self.queue.sent[-1]
        self.keep(message, queue)

    async def let_go(self, envelope: Envelope) -> Run:
        """A worker takes the run as far as it goes, and lets it go."""
        await self.bench.handle(LANE, envelope)
        run = await self.bench.row(envelope.run_id)
        assert run is not None
        return run

    async def die_when(self, envelope: Envelope, reached: Callable[[Run], bool]) -> Run:
        """A worker takes the run, and is gone as soon as its record is so."""
        services = self.bench.services
        ports = {name: Faulty(getattr(services, name)) for name in ("runs", "queue", "slots", "blobs")}
        self.bench.services = replace(services, **ports)
        task = asyncio.create_task(self.bench.handle(LANE, envelope))
        self.bench.services = services
        while True:
            run = await self.bench.row(envelope.run_id)
            if run is not None and reached(run):
                break
            await asyncio.sleep(0.01)
        for port in ports.values():
            port.dead = True
        task.cancel()
        await asyncio.wait({task})
        assert run.lease_until is not None
        self.resume_at = run.lease_until + timedelta(seconds=6)
        return run

    async def move(self, run_id: str, move: Any) -> None:
        """An operator's move."""
        run = await self.bench.row(run_id)
        assert run is not None
        cache = WorkflowCache(self.bench.services.catalog, self.bench.settings.classes)
        await Control(self.bench.services, cache).carry_out(run, move)

    def end(self, envelope: Envelope, output: Any = None, status: str = "succeeded") -> None:
        """How the run has to end."""
        self.ends[envelope.run_id] = (status, output)

    async def recorded(self, about: str) -> Recording:
        """What there is now."""
        objects = self.bench.objects()
        runs = []
        for run_id, (status, output) in self.ends.items():
            row = await self.bench.row(run_id)
            journal = [] if row is None else journal_of(await self.bench.whole(run_id))
            runs.append(Expected(run_id=run_id, journal=journal, status=status, output=output))
        return Recording(
            about=about,
            recorded_by=VERSION,
            resume_at=self.resume_at.isoformat(),
            items=[to_hex(item) for item in self.bench.items()],
            objects=objects,
            messages=[[queue.role, body] for queue, body in self.messages],
            orders=self.orders,
            moves=self.moves,
            runs=[{name: getattr(run, name) for name in Expected.__slots__} for run in runs],
        )


def journal_of(run: Run) -> list[str]:
    """A journal in words that no format has a part in."""
    return [f"{e.seq} {e.type.value} {e.step or ''} {e.attempt or ''}".strip() for e in run.journal]


Scene = Callable[[Play], Awaitable[None]]
SCENES: dict[str, Scene] = {}


def scene(function: Scene) -> Scene:
    """A state to be recorded: its docstring says which, its name is the file's."""
    SCENES[function.__name__.replace("_", "-")] = function
    return function


@scene
async def queued(play: Play) -> None:
    """Accepted, with its row and its envelope."""
    envelope = await play.accept(await play.bench.register(DIAMOND))
    play.keep(envelope)
    play.end(envelope, DIAMOND_OUTPUT)


@scene
async def sent(play: Play) -> None:
    """Accepted by an API that died before it created the rows: three envelopes of a batch, one input in S3."""
    workflow = await play.bench.register(DIAMOND)
    big = "x" * 9_000
    ref = await play.bench.services.blobs.put(f"{TENANT}/big", dump(big))
    for given, seen in (("it", "it"), ("that", "that"), (ref, big)):
        envelope = await play.accept(workflow, given, row=False)
        play.keep(envelope)
        play.end(envelope, {"left": f"left of {seen}", "right": f"right of {seen}"})


@scene
async def crashed(play: Play) -> None:
    """Its worker died with one step done and another under way; the envelope comes again."""
    slow = {"task": "chaos.sleep", "input": {"ms": 1_500}, "needs": ["seed"]}
    steps = {**DIAMOND["steps"], "right": slow}  # type: ignore[dict-item]
    envelope = await play.accept(await play.bench.register({**DIAMOND, "steps": steps}))
    await play.die_when(envelope, lambda run: run.steps.get("left") is not None and run.steps["left"].settled)
    play.keep(envelope)
    play.end(envelope, {"left": "left of it", "right": {"ms": 1_500}})


@scene
async def retrying(play: Play) -> None:
    """Let go until a step's next attempt; its wake is on the way."""
    steps = {
        "first": {"task": "core.echo", "input": "done"},
        "flaky": {"task": "chaos.fail", "needs": ["first"], "input": {"times": 1}, "retry": LATER},
    }
    envelope = await play.accept(await play.bench.register({"name": "flaky", "steps": steps}))
    run = await play.let_go(envelope)
    assert (run.status, run.due_at is not None) == (Status.WAITING, True)
    assert run.due_at is not None
    play.resume_at = run.due_at + timedelta(seconds=1)
    play.keep_last()
    play.end(envelope)


@scene
async def sealed(play: Play) -> None:
    """A long run with most of its record sealed away, waiting for a timer."""
    steps: dict[str, Any] = {"s0": {"task": "core.echo", "input": "0"}}
    for n in range(1, 40):
        text = f"{n} after ${{steps.s{n - 1}.output}}"
        steps[f"s{n}"] = {"task": "core.echo", "needs": [f"s{n - 1}"], "input": text if n % 5 else str(n)}
        # What fills the record, so that most of it is sealed away.
        steps[f"filler{n}"] = {"task": "core.echo", "needs": [f"s{n - 1}"], "input": f"{n:03}" * 400}
    steps["pause"] = {"wait": {"for": "1m"}, "needs": ["s39"]}
    steps["last"] = {"task": "core.echo", "needs": ["pause"], "input": "last after ${steps.s39.output}"}
    document = {"name": "chain", "steps": steps, "output": "${steps.last.output}"}
    envelope = await play.accept(await play.bench.register(document))
    run = await play.let_go(envelope)
    assert run.sealed.newest is not None
    assert run.due_at is not None
    play.resume_at = run.due_at + timedelta(seconds=1)
    play.keep_last()
    play.end(envelope, "last after 39 after 38 after 37 after 36 after 35")


@scene
async def signalled(play: Play) -> None:
    """Waits for one signal while another, for a later wait, has come already; then the first one comes."""
    steps = {
        "one": {"wait": {"signal": "first", "timeout": "12h"}},
        "two": {"wait": {"signal": "second", "timeout": "12h"}, "needs": ["one"]},
        "end": {"task": "core.collect", "needs": ["one", "two"]},
    }
    document = {"name": "gates", "steps": steps, "output": "${steps.end.output}"}
    envelope = await play.accept(await play.bench.register(document))
    await play.let_go(envelope)
    await play.move(envelope.run_id, Signalled(by="Ada", name="second", payload={"ok": 2}))
    play.moves.append(["signal", envelope.run_id, "first", {"ok": 1}])
    play.end(envelope, {"one": {"ok": 1}, "two": {"ok": 2}})


@scene
async def paused(play: Play) -> None:
    """Paused while it was queued; then resumed."""
    envelope = await play.accept(await play.bench.register(DIAMOND))
    await play.move(envelope.run_id, PauseAsked(by="Ada"))
    play.moves.append(["resume", envelope.run_id])
    play.end(envelope, DIAMOND_OUTPUT)


@scene
async def redriven(play: Play) -> None:
    """Failed, then redriven by an operator; its wake is on the way."""
    steps = {
        "first": {"task": "core.echo", "input": "kept"},
        "gate": {"wait": {"signal": "go", "timeout": "1s"}, "needs": ["first"]},
        "after": {"task": "core.echo", "needs": ["gate"], "input": "${steps.first.output}, and on"},
    }
    document = {"name": "gated", "steps": steps, "output": "${steps.after.output}"}
    envelope = await play.accept(await play.bench.register(document))
    run = await play.let_go(envelope)
    while not run.terminal:
        await asyncio.sleep(0.3)
        queue, wake = play.queue.sent[-1]
        await play.bench.handle(queue, wake)
        found = await play.bench.row(envelope.run_id)
        assert found is not None
        run = found
    assert run.status is Status.FAILED
    await play.move(envelope.run_id, RedriveAsked(by="Ada"))
    await play.move(envelope.run_id, Signalled(by="Ada", name="go", payload=None))
    play.keep_last()
    play.resume_at = play.bench.clock.now()
    play.end(envelope, "kept, and on")


async def _map(play: Play) -> tuple[Envelope, list[dict[str, Any]]]:
    steps = {
        "words": {
            "map": {"over": "${input}", "task": "core.echo", "input": "${item} at ${index}", "via": "stepfunctions"}
        }
    }
    document = {"name": "wide", "steps": steps, "output": "${steps.words.output}"}
    envelope = await play.accept(await play.bench.register(document), [f"w{n}" for n in range(60)])
    await play.let_go(envelope)
    orders = orders_of(play.bench.executions.started[0], play.bench.objects())
    assert len(orders) > 1
    play.end(envelope, [f"w{n} at {n}" for n in range(60)])
    return envelope, orders


@scene
async def mapping(play: Play) -> None:
    """A wide map elsewhere: one batch recorded, the others ordered, then the ring of its end."""
    envelope, orders = await _map(play)
    await play.bench.batch(orders[0])
    play.orders += orders[1:]
    ring = {"z": 1, "k": "wake", "tenant": TENANT, "run": envelope.run_id, "submission": envelope.submission}
    play.messages.append((RESUMING, json.dumps({**ring, "class": "model", "map": "words", "outages": 0})))


@scene
async def map_broken(play: Play) -> None:
    """A wide map whose execution broke after its batches were recorded: EventBridge tells of it."""
    envelope, orders = await _map(play)
    for order in orders:
        await play.bench.batch(order)
    given = {"tenant": TENANT, "run": envelope.run_id, "submission": envelope.submission, "class": "model"}
    detail = {
        "executionArn": "arn:of:it",
        "status": "FAILED",
        "input": json.dumps({**given, "step": "words", "try": 1}),
    }
    play.messages.append((RESUMING, json.dumps(detail)))


@scene
async def forked(play: Play) -> None:
    """Queued as a fork of a run that failed, with its checkpoints in S3."""
    steps = {
        "first": {"task": "core.echo", "input": "taken over"},
        "second": {"task": "chaos.fail", "needs": ["first"], "input": {"retryable": False}},
    }
    source = await play.accept(await play.bench.register({"name": "source", "steps": steps}))
    failed = await play.let_go(source)
    better = {**steps, "second": {"task": "core.echo", "needs": ["first"], "input": "${steps.first.output}"}}
    document = {"name": "source", "steps": better, "output": "${steps.second.output}"}
    workflow = await play.bench.register(document)
    cache = WorkflowCache(play.bench.services.catalog, play.bench.settings.classes)
    old = await cache.get(TENANT, "source", source.workflow_version)
    forker = Forker(play.bench.services, cache, None)  # type: ignore[arg-type]  # it submits nothing here
    fork = await forker._taken_over(failed, "second", old, workflow)
    stored = await play.bench.services.blobs.put(f"{TENANT}/{failed.id}/checkpoints", dump(fork.kept))
    envelope = await play.accept(workflow, origin=fork.stored(stored))
    play.keep(envelope)
    play.end(source, None, "failed")
    play.end(envelope, "taken over")


@scene
async def ended(play: Play) -> None:
    """Ended, in each of the ways there are; messages about them still come."""
    workflow = await play.bench.register(DIAMOND)
    done = await play.accept(workflow)
    await play.let_go(done)
    failing = {"name": "failing", "steps": {"a": {"task": "chaos.fail", "input": {"retryable": False}}}}
    failed = await play.accept(await play.bench.register(failing))
    await play.let_go(failed)
    for envelope in (done, failed):
        play.keep(envelope)
    play.end(done, DIAMOND_OUTPUT)
    play.end(failed, None, "failed")


def record(folder: Path, names: Sequence[str], say: Callable[[str], None]) -> None:
    """Record these states, each on a deployment of its own."""
    session = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")
    for name in names:
        function = SCENES[name]
        with mock_aws():
            bench = Bench(session, name=f"recorded-{name}", now=START)
            try:
                recording = asyncio.run(_played(function, bench))
            finally:
                bench.close()
        write(folder, name, recording)
        say(f"{name}: {len(recording.items)} items, {len(recording.messages)} messages")


async def _played(function: Scene, bench: Bench) -> Recording:
    play = Play(bench)
    await function(play)
    return await play.recorded((function.__doc__ or "").strip())
