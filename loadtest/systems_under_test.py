"""What a scenario aims at: the service in memory, a stack on the emulator, or a URL somebody gives."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fanfold import Client
from fanfold.local import deploy, local_stack, tokens
from fanfold.local.cdk_app import Options
from fanfold.local.local_stack import LocalStack
from fanfold.service.settings import Settings
from loadtest.environment import differing
from loadtest.seeding import seed

STOP_SECONDS = 30.0
"""A process that was told to stop and has not by then is killed, and the scenario fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a scenario needs its target to be.

    `workers` are process workers of `concurrency` runs each; 0 leaves the work to Lambda functions, and where it is
    `unworked`, to whoever comes (in memory somebody always does). `pools` are other
    classes with one process worker each, by how many runs it has at once. `past` ended runs are there already.
    A URL is taken as it is: only its owner can change it.
    """

    workers: int = 1
    concurrency: int = 100
    unworked: bool = False
    pools: Mapping[str, int] = field(default_factory=dict)
    past: int = 0
    max_queue_depth: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A service to load. `stack` and `ledger` are there where it runs on this machine.

    `differing` are the settings that are not as shipped, as far as they can be known. `processes` are the process
    ids of its workers, by name; in memory of the one process that is everything.
    """

    kind: str
    url: str
    token: str | None
    stack: LocalStack | None = None
    ledger: Path | None = None
    processes: Mapping[str, int] = field(default_factory=dict)
    differing: Mapping[str, Any] = field(default_factory=dict)

    def client(self, *, token: str | None = None, retry_for_seconds: float = 60.0) -> Client:
        """A client of its API with somebody's token, or the target's own; to be closed by the caller."""
        return Client(self.url, token or self.token, retry_for_seconds=retry_for_seconds)

    def token_of(self, owner: str, *, tenant: str | None = None) -> str | None:
        """A token of somebody's own, in the target's tenant or another; a URL has only the token that came with it."""
        if self.stack is not None:
            text, _ = tokens.create(
                self.stack.environment({}),
                tenant=tenant or deploy.TENANT,
                owner=owner,
                scopes=tokens.ALL_SCOPES,
                now=datetime.now(UTC),
                draw=secrets.token_bytes,
            )
            return text
        return f"{tenant or 'load'}.{owner}" if self.kind == "memory" else self.token


@contextmanager
def opened(kind: str, needs: Needs, folder: Path) -> Iterator[Target]:
    """The target `memory`, `emulator` or a URL, up and ready; what was started for it is stopped again.

    `folder` takes the state and the logs of what is started.
    """
    match kind:
        case "memory":
            with _memory(needs, folder) as target:
                yield target
        case "emulator":
            with _emulator(needs, folder) as target:
                yield target
        case url if url.startswith(("http://", "https://")):
            yield Target(kind=url, url=url, token=os.environ.get("FANFOLD_TOKEN"))
        case other:
            raise ValueError(f"the target is memory, emulator or a URL, not {other!r}")


@contextmanager
def workers(
    stack: LocalStack, count: int, *, concurrency: int, folder: Path, class_name: str = "model"
) -> Iterator[Sequence[int]]:
    """So many worker processes of a class on a local stack; gives their process ids."""
    command = [
        sys.executable,
        "-m",
        "fanfold.commands.command_line",
        "worker",
        "--class",
        class_name,
        "--concurrency",
        str(concurrency),
    ]
    with ExitStack() as running:
        processes: list[subprocess.Popen[bytes]] = []
        for number in range(count):
            log = running.enter_context((folder / f"worker-{class_name}-{number}.log").open("wb"))
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=stack.environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            running.callback(_end, process)
            processes.append(process)
        yield [process.pid for process in processes]
        for process in processes:
            # All at once: each drains on its own.
            process.send_signal(signal.SIGTERM)


@contextmanager
def _memory(needs: Needs, folder: Path) -> Iterator[Target]:
    ledger = folder / "ledger.jsonl"
    depth = 10_000 if needs.max_queue_depth is None else needs.max_queue_depth
    pools = {"model": needs.concurrency * max(1, needs.workers), **needs.pools}
    command = [sys.executable, "-m", "loadtest.server", "--ledger", str(ledger), "--max-queue-depth", str(depth)]
    command += ["--pools", json.dumps(pools), "--settings", json.dumps(dict(needs.settings))]
    command += ["--past", str(needs.past)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=local_stack.CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            if not first:
                process.wait(STOP_SECONDS)
                said_last = (folder / "server.log").read_text(encoding="utf-8").strip().rpartition("\n")[2]
                raise RuntimeError(f"the server did not start: {said_last}")
            said = json.loads(first)
            yield Target(
                kind="memory",
                url=said["url"],
                token=None,
                ledger=ledger,
                processes={"server": process.pid},
                differing=said["differing"],
            )
        finally:
            assert process.stdin is not None
            process.stdin.close()
            _end(process)


@contextmanager
def _emulator(needs: Needs, folder: Path) -> Iterator[Target]:
    state = folder / local_stack.STATE_FOLDER
    options = Options(
        port=_free_port(),
        workers="none" if needs.workers or needs.unworked else "lambda",
        max_queue_depth=needs.max_queue_depth,
        settings=needs.settings or None,
    )
    stack = deploy.up(options, state=state, environ=os.environ, report=_say)
    try:
        if needs.past:
            seed(stack, deploy.TENANT, needs.past, report=_say)
        with ExitStack() as running:
            processes: dict[str, int] = {}
            own = 0 if needs.unworked else needs.workers
            pools = {"model": (own, needs.concurrency), **{name: (1, n) for name, n in needs.pools.items()}}
            for name, (count, at_once) in pools.items():
                begun = workers(stack, count, concurrency=at_once, folder=folder, class_name=name)
                for number, pid in enumerate(running.enter_context(begun)):
                    processes[f"worker-{name}-{number}"] = pid
            yield Target(
                kind="emulator",
                url=stack.api_url,
                token=stack.token,
                stack=stack,
                ledger=Path(stack.ledger),
                processes=processes,
                differing=differing(Settings.from_env(stack.env)),
            )
    finally:
        deploy.down(state=state)


def _end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
