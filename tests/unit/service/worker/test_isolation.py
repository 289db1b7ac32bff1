"""Suspects in processes of their own: what a child's end says of its message (R7)."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from pathlib import Path

import pytest

from fanfold.engine.record.messages import QueueName, Received
from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.worker import isolation as isolation_module
from fanfold.service.worker.dispositions import UNREADABLE_SECONDS, Ack, Redeliver
from fanfold.service.worker.isolation import Isolation


def write(script: Path, text: str) -> None:
    script.write_text(text)


async def until_written(path: Path) -> str:
    """What is in the file as soon as there is something."""
    for _ in range(500):
        if text := read(path):
            return text
        await asyncio.sleep(0.01)
    raise AssertionError(f"nothing was written to {path}")


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


PYTHON = sys.executable
RESUMING = QueueName(class_name="model", role="resume")


A_LEASE_LATER = Redeliver(seconds=66)
"""What died may have held the run."""


def a_message(body: str = "{}") -> Received:
    return Received(queue=RESUMING, message_id="m1", receipt="r1", body=body, message=None, receives=1)


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is started instead of Python; its text is the test's."""
    script = tmp_path / "child"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(script))
    return script


@pytest.mark.parametrize(
    ("end", "what"),
    [
        ("exit 0", Ack()),
        ('printf 1 > "/proc/self/fd/$3"; exit 10', Redeliver(seconds=1)),
        ('printf .... > "/proc/self/fd/$3"; printf 66 > "/proc/self/fd/$3"; exit 10', Redeliver(seconds=66)),
        ("exit 10", A_LEASE_LATER),
        ('printf 7 > "/proc/self/fd/$3"; exit 1', A_LEASE_LATER),
    ],
)
async def test_a_childs_exit_status_and_last_word_are_its_messages_fate(child: Path, end: str, what: object) -> None:
    write(child, f"#!/bin/sh\ncat > /dev/null\n{end}\n")
    assert await Isolation(Settings()).handle(a_message()) == what


async def test_a_child_that_is_killed_hands_its_message_back_and_is_told_of(
    child: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(child, "#!/bin/sh\ncat > /dev/null\nkill -9 $$\n")
    assert await Isolation(Settings()).handle(a_message()) == A_LEASE_LATER
    assert "process died" in caplog.text


async def test_a_child_that_dies_before_it_has_read_its_message_hands_it_back(child: Path) -> None:
    write(child, "#!/bin/sh\nkill -9 $$\n")
    assert await Isolation(Settings()).handle(a_message("x" * 300_000)) == A_LEASE_LATER


async def test_a_child_gets_the_message_and_the_settings_of_its_parent(child: Path, tmp_path: Path) -> None:
    write(child, f'#!/bin/sh\ncat > {tmp_path}/message\necho "$FANFOLD_TABLE $2" > {tmp_path}/said\n')
    assert await Isolation(Settings(table="runs")).handle(a_message('{"a": 1}')) == Ack()
    assert await until_written(tmp_path / "said") == "runs fanfold.service.worker.isolation\n"
    assert '"body": "{\\"a\\": 1}"' in await until_written(tmp_path / "message")


async def test_children_that_are_told_to_stop_end_in_their_own_time(child: Path, tmp_path: Path) -> None:
    write(
        child,
        "#!/bin/sh\ncat > /dev/null\ntrap 'printf 1 > /proc/self/fd/$3; exit 10' TERM\n"
        f"echo up > {tmp_path}/up\nwhile true; do sleep 0.02; done\n",
    )
    isolation = Isolation(Settings())
    task = asyncio.create_task(isolation.handle(a_message()))
    await until_written(tmp_path / "up")
    isolation.stop()
    isolation.stop()
    assert await asyncio.wait_for(task, 5) == Redeliver(seconds=1)
    isolation.stop()


async def test_a_child_that_was_told_to_stop_before_it_could_hear_of_it_had_begun_nothing(
    child: Path, tmp_path: Path
) -> None:
    write(child, f"#!/bin/sh\ncat > /dev/null\necho up > {tmp_path}/up\nexec sleep 60\n")
    isolation = Isolation(Settings())
    task = asyncio.create_task(isolation.handle(a_message()))
    await until_written(tmp_path / "up")
    isolation.stop()
    assert await asyncio.wait_for(task, 5) == Redeliver(seconds=1)


async def test_a_child_nobody_waits_for_any_more_is_killed_and_gone(child: Path, tmp_path: Path) -> None:
    write(child, f"#!/bin/sh\ntrap '' TERM\ncat > /dev/null\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    task = asyncio.create_task(Isolation(Settings()).handle(a_message()))
    pid = int(await until_written(tmp_path / "pid"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_real_child_hands_back_a_message_it_can_not_read_though_no_service_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    classes = {"model": ClassSettings(queues={"resume": f"http://127.0.0.1:{port}/queue"})}
    isolation = Isolation(Settings(table="runs", bucket="b", classes=classes))
    assert await asyncio.wait_for(isolation.handle(a_message("no json")), 30) == Redeliver(seconds=UNREADABLE_SECONDS)
    assert "process died" not in caplog.text


QUICK = Settings(lease_seconds=0.5, clock_skew_seconds=0.1)
"""A child may be silent for 2 s."""


async def test_a_child_that_never_comes_to_life_is_killed_and_gives_its_message_back(
    child: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(isolation_module, "START_SECONDS", 0.3)
    write(child, f"#!/bin/sh\ntrap '' TERM\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    assert await asyncio.wait_for(Isolation(QUICK).handle(a_message()), 10) == Redeliver(seconds=1)
    assert "stood still and is killed" in caplog.text
    with pytest.raises(ProcessLookupError):
        os.kill(int(read(tmp_path / "pid")), 0)


async def test_a_child_whose_loop_a_task_blocks_is_killed_when_its_lease_is_over(
    child: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = f"""#!{PYTHON}
import asyncio, pathlib, sys, time
from fanfold.service.worker.heartbeat import beat

async def child():
    beating = asyncio.create_task(beat(int(sys.argv[3]), every_seconds=0.1))
    await asyncio.sleep(3)  # longer than it may be silent
    pathlib.Path({str(tmp_path / "alive")!r}).write_text("alive")
    time.sleep(60)

asyncio.run(child())
"""
    write(child, script)
    assert await asyncio.wait_for(Isolation(QUICK).handle(a_message()), 30) == Redeliver(seconds=1)
    assert read(tmp_path / "alive") == "alive"
    assert "stood still and is killed" in caplog.text


async def test_children_leave_no_descriptor_behind(child: Path) -> None:
    write(child, "#!/bin/sh\ncat > /dev/null\nexit 0\n")
    isolation = Isolation(Settings())
    await isolation.handle(a_message())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await isolation.handle(a_message())
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_child_has_the_environment_and_folder_its_worker_began_with(
    child: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN", "kept")
    folder = os.getcwd()
    isolation = Isolation(Settings())
    write(child, f'#!/bin/sh\ncat > /dev/null\necho "$OWN $PWD" > {tmp_path}/said\n')
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as cleared:
        for name in list(os.environ):
            cleared.delenv(name)
        assert await isolation.handle(a_message()) == Ack()
    assert read(tmp_path / "said") == f"kept {folder}\n"
