"""`fanfold dev` and `fanfold serve` as somebody uses them: real processes, a project of one's own, one file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from fanfold import Client, Unauthorized

FANFOLD = [sys.executable, "-m", "fanfold.commands.command_line"]
START_SECONDS = 60.0
"""It takes one; a busy machine may need many times that."""

PROJECT = """
[project]
name = "mine"

[tool.fanfold]
tasks = ["tasks"]

[tool.fanfold.settings]
lease_seconds = 3
"""
TASKS = """
import asyncio
from fanfold import task

@task("own.say")
async def say(given, ctx):
    await asyncio.sleep(given.get("seconds", 0))
    return WORD

WORD = "one"
"""
FLOW = """
name: talk
steps:
  first: {task: own.say, input: "${input}"}
  second: {task: own.say, input: {}, needs: [first]}
output: ["${steps.first.output}", "${steps.second.output}"]
"""
EACH = """
name: each
steps:
  all: {map: {over: "${input}", task: core.echo, input: "${item}", max_concurrency: 10}}
output: "${steps.all.output}"
"""


class Running:
    """A `fanfold dev` or `serve` under way, and what it has said."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("FANFOLD_", "AWS_"))}
        self.process = subprocess.Popen(
            [*FANFOLD, *arguments], cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._heard = threading.Condition()
        streams = (self.process.stdout, self.process.stderr)
        self._listeners = [threading.Thread(target=self._listen, args=(stream,)) for stream in streams]
        for listener in self._listeners:
            listener.start()
        self.until("Workflows")

    def _listen(self, stream: Any) -> None:
        for line in stream:
            with self._heard:
                self.lines.append(line.rstrip())
                self._heard.notify_all()
        with self._heard:
            self._heard.notify_all()

    def until(self, text: str, *, after: int = 0) -> int:
        """Wait until it says so, from a line on; the number of lines by then."""
        with self._heard:
            heard = self._heard.wait_for(
                lambda: any(text in line for line in self.lines[after:]) or self.process.poll() is not None,
                timeout=START_SECONDS,
            )
            assert heard, self.lines
            assert any(text in line for line in self.lines[after:]), self.lines
            return len(self.lines)

    @property
    def told(self) -> Mapping[str, Any]:
        """What `.fanfold/local.json` says."""
        found: Mapping[str, Any] = json.loads((self.folder / ".fanfold" / "local.json").read_text())
        return found

    def client(self) -> Client:
        return Client(self.told["api_url"], self.told["token"], retry_for_seconds=30)

    def close(self) -> None:
        """Hear it out; it has ended."""
        for listener in self._listeners:
            listener.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


Start = Callable[..., Running]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "pyproject.toml": PROJECT,
        "tasks/mine.py": TASKS,
        "workflows/talk.yaml": FLOW,
        "workflows/each.yaml": EACH,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def start(project: Path) -> Iterator[Start]:
    running: list[Running] = []

    def begin(*arguments: str) -> Running:
        running.append(Running(project, *(arguments or ("dev", "--port", "0"))))
        return running[-1]

    yield begin
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        one.close()


def finished(client: Client, workflow: str, value: Any) -> Any:
    run = client.wait(client.submit(workflow, value)["id"], timeout=60)
    assert run["status"] == "succeeded", run
    return run["output"]


def test_a_project_is_served_and_its_runs_survive_kill_9_with_the_same_url_and_token(start: Start) -> None:
    dev = start()
    before = dev.told
    with dev.client() as client:
        assert finished(client, "talk", {}) == ["one", "one"]
        assert finished(client, "each", list(range(200))) == list(range(200))
        slow = client.submit("talk", {"seconds": 2})["id"]
        while client.get(slow)["status"] != "running":
            time.sleep(0.02)
    dev.process.kill()
    dev.process.wait()
    port = before["api_url"].rpartition(":")[2]
    again = start("dev", "--port", port)
    assert (again.told["api_url"], again.told["token"]) == (before["api_url"], before["token"])
    with again.client() as client:
        run = client.wait(slow, timeout=120)
    assert (run["status"], run["epoch"], run["output"]) == ("succeeded", 2, ["one", "one"])
    assert again.end(signal.SIGINT) == 0


def test_a_change_of_a_task_counts_while_runs_go_on_and_a_mistake_leaves_the_old_code(start: Start) -> None:
    dev = start()
    tasks, flow = dev.folder / "tasks" / "mine.py", dev.folder / "workflows" / "talk.yaml"
    with dev.client() as client:
        under_way = client.submit("talk", {"seconds": 4})["id"]
        while "first" not in str(client.get(under_way)["steps"]) or client.get(under_way)["status"] != "running":
            time.sleep(0.02)
        tasks.write_text(TASKS.replace('"one"', '"two"'))
        heard = dev.until("Reloaded after a change of tasks/mine.py")
        assert finished(client, "talk", {}) == ["two", "two"]
        tasks.write_text("def broken(:\n")
        heard = dev.until("tasks.mine can't be imported", after=heard)
        assert any("SyntaxError" in line for line in dev.lines)
        assert finished(client, "talk", {}) == ["two", "two"]
        tasks.write_text(TASKS)
        heard = dev.until("Tasks           own.say", after=heard)
        flow.write_text(FLOW.replace("own.say", "own.sing"))
        heard = dev.until("workflows/talk.yaml is not applied", after=heard)
        assert any("own.sing" in line for line in dev.lines), "it says why"
        assert finished(client, "talk", {}) == ["one", "one"], "the last version that was right stays"
        run = client.wait(under_way, timeout=60)
        assert run["output"][0] == "one", "what had begun goes on with the code that it began with"


def test_a_burst_of_submits_is_answered_whole(start: Start) -> None:
    dev = start("dev", "--port", "0", "--max-queue-depth", "40")

    def submit(number: int) -> int:
        answer = httpx.post(
            f"{dev.told['api_url']}/v1/runs",
            json={"workflow": "talk", "input": {"seconds": 1}},
            headers={"authorization": f"Bearer {dev.told['token']}"},
            timeout=60,
        )
        return answer.status_code

    with ThreadPoolExecutor(60) as pool:
        answers = list(pool.map(submit, range(300)))
    assert set(answers) == {202, 429}
    assert answers.count(202) >= 40


def test_several_processes_serve_one_file(start: Start) -> None:
    served = start("serve", "--port", "0", "--workers", "3", "--concurrency", "2")
    with served.client() as client:
        ids = [client.submit("talk", {"seconds": 0.3})["id"] for _ in range(12)]
        runs = [client.wait(run_id, timeout=60) for run_id in ids]
        workers = {
            str(event.get("worker"))
            for run_id in ids
            for event in client.events(run_id)
            if event["type"] == "run.claimed"
        }
    assert {run["status"] for run in runs} == {"succeeded"}
    assert len(workers) > 1
    assert served.end() == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("doctor",), "is served by `fanfold dev`"),
        (("dashboard",), "is served by `fanfold dev`"),
        (("up",), "being served at"),
        (("down",), "Ctrl-C there ends it"),
    ],
)
def test_what_is_for_a_stack_says_so_of_a_project_that_is_served_here(
    start: Start, project: Path, command: tuple[str, ...], said: str
) -> None:
    dev = start()
    assert said in refused(project, *command)
    with dev.client() as client:
        assert finished(client, "talk", {}) == ["one", "one"]


def test_tokens_are_made_and_revoked_beside_the_process_that_serves(start: Start, project: Path) -> None:
    dev = start()
    done = subprocess.run(
        [*FANFOLD, "token", "create", "--scope", "read"], cwd=project, capture_output=True, text=True, check=True
    )
    with Client(dev.told["api_url"], done.stdout.strip()) as client:
        assert list(client.runs()) == []
    subprocess.run([*FANFOLD, "token", "revoke", done.stdout.strip()], cwd=project, check=True, capture_output=True)
    with Client(dev.told["api_url"], done.stdout.strip()) as client, pytest.raises(Unauthorized):
        list(client.runs())


def refused(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*FANFOLD, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_one_project_is_served_by_one_process(start: Start, project: Path) -> None:
    dev = start()
    assert f"being served at {dev.told['api_url']} already" in refused(project, "dev", "--port", "0")


def test_a_port_that_is_taken_is_told(start: Start, project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    port = start().told["api_url"].rpartition(":")[2]
    other = tmp_path_factory.mktemp("other")
    (other / "pyproject.toml").write_text("[tool.fanfold]\n")
    assert "choose another with --port" in refused(other, "dev", "--port", port)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (None, "There is no project here"),
        ("[tool.fanfold]\ntask = []\n", "did you mean 'tasks'"),
        ("[tool.fanfold.settings]\nleese_seconds = 3\n", "there is no 'leese_seconds'"),
        ("[tool.fanfold.settings]\nlease_seconds = 'long'\n", "lease_seconds is a number"),
        ("[tool.fanfold.settings]\nlease_seconds = 1\n", "lease_seconds must be more than twice"),
        ("[tool.fanfold.classes.model]\nlanes = 3\n", "classes: model: "),
    ],
)
def test_a_project_that_is_wrong_is_told_in_a_sentence(tmp_path: Path, table: str | None, said: str) -> None:
    if table is not None:
        (tmp_path / "pyproject.toml").write_text(table)
    assert said in refused(tmp_path, "dev", "--port", "0")
