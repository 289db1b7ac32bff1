"""SwarmKit's published package in a virtual environment of its own: all in one process, or an API and workers.

One agent that asks its mock model once. It may have as many jobs at once as it is asked for: as shipped they are five.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from fanfold.local.local_stack import CHECKOUT
from lab.peers.postgres import Cluster, cluster
from lab.peers.processes import free_port, running, until

PACKAGE = "swarmkit-runtime==1.265.0"
HOME = CHECKOUT / "build" / "peers" / "swarmkit"
"""Its environment: made once, ignored by git, taken away by `make clean`."""

TOPOLOGY = "one"
START_SECONDS = 60.0
WORKSPACE = """\
apiVersion: swarmkit/v1
kind: Workspace
metadata: {{id: load, name: load}}
server: {{jobs: {{max_concurrent: {jobs}}}}}
"""
AGENT = """\
apiVersion: swarmkit/v1
kind: Topology
metadata: {name: one, version: 0.1.0}
agents:
  root: {id: root, role: root, model: {provider: mock, name: mock}, prompt: {system: answer}}
"""
_COLUMNS = ("id", "status", "worker_id", "created_at", "started_at", "completed_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmKit:
    """One that serves: its URL, and where its rows are (`cluster` None: in a file of its workspace)."""

    url: str
    workspace: Path
    environ: Mapping[str, str]
    cluster: Cluster | None = None

    def submit(self, client: httpx.Client) -> str:
        """One run; gives its job's id. Raises HTTPStatusError for any other answer."""
        answer = client.post(f"{self.url}/run/{TOPOLOGY}", json={"input": "load"})
        job: str = answer.raise_for_status().json()["job_id"]
        return job

    def jobs(self) -> list[dict[str, Any]]:
        """Every job there is in its own table, with its times: what was really done."""
        columns = ", ".join(_COLUMNS)
        if self.cluster is not None:
            query = f"select coalesce(json_agg(j), '[]') from (select {columns} from jobs) j"
            found: list[dict[str, Any]] = json.loads(self.cluster.ask(query))
            return found
        with sqlite3.connect(f"file:{self.workspace / '.swarmkit' / 'store.sqlite'}?mode=ro", uri=True) as store:
            return [dict(zip(_COLUMNS, row, strict=True)) for row in store.execute(f"select {columns} from jobs")]

    @contextmanager
    def workers(self, count: int) -> Iterator[None]:
        """So many worker processes, which have begun or soon will. Only one that has a cluster can have them."""
        with ExitStack() as stack:
            for number in range(count):
                log = self.workspace.parent / f"swarmkit-worker-{count}-{number}.log"
                command = [_command(), "worker", str(self.workspace), "--poll-seconds", "0.1"]
                stack.enter_context(running(command, log=log, environ=self.environ, cwd=self.workspace))
            yield


@contextmanager
def serving(folder: Path, *, latency_ms: int, jitter_ms: int, jobs: int, split: bool) -> Iterator[SwarmKit]:
    """It serves on 127.0.0.1; `split`: an API only, on a PostgreSQL of its own, and workers do the work.

    `folder` takes its workspace and logs. Raises what installing it, or PostgreSQL, does.
    """
    installed()
    workspace = folder / "workspace"
    (workspace / "topologies").mkdir(parents=True)
    (workspace / "workspace.yaml").write_text(WORKSPACE.format(jobs=jobs), encoding="utf-8")
    (workspace / "topologies" / f"{TOPOLOGY}.yaml").write_text(AGENT, encoding="utf-8")
    environ = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ} | {
        "HOME": str(folder),
        "SWARMKIT_MOCK_LATENCY_MS": str(latency_ms),
        "SWARMKIT_MOCK_LATENCY_JITTER_MS": str(jitter_ms),
    }
    with ExitStack() as stack:
        database = stack.enter_context(cluster()) if split else None
        if database is not None:
            environ["SWARMKIT_STORE_URL"] = database.url
        url = f"http://127.0.0.1:{(port := free_port())}"
        command = [_command(), "serve", str(workspace), "--host", "127.0.0.1", "--port", str(port)]
        command += ["--role", "api", "--max-queue-depth", "0"] if split else []
        stack.enter_context(running(command, log=folder / "swarmkit.log", environ=environ, cwd=workspace))
        until(lambda: _answers(f"{url}/health"), within_seconds=START_SECONDS, what="SwarmKit")
        yield SwarmKit(url=url, workspace=workspace, environ=environ, cluster=database)


def installed() -> None:
    """Make its environment, unless it is there. Raises CalledProcessError when it can't be installed."""
    if Path(_command()).exists():
        return
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    for command in (
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(HOME)],
        [uv, "pip", "install", "--quiet", "--python", str(HOME / "bin" / "python"), PACKAGE],
    ):
        subprocess.run(command, check=True)


def completed(jobs: Sequence[Mapping[str, Any]]) -> int:
    """How many jobs were done."""
    return sum(job["status"] == "completed" for job in jobs)


def _command() -> str:
    return str(HOME / "bin" / "swarmkit")


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
