"""PostgreSQL, as Debian has it (`apt-get install postgresql`): a cluster of its own, on 127.0.0.1 and a free port.

It refuses to run as root; then it belongs to the user that Debian makes for it, or to `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.peers.processes import free_port

DEBIAN = Path("/usr/lib/postgresql")
USERS = ("postgres", "nobody")
CONNECTIONS = 400
"""Eight workers with a pool each need more than the hundred it has by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster that runs: its port and superuser. Nobody needs a password; it listens here only."""

    port: int
    user: str

    @property
    def url(self) -> str:
        """A connection URL."""
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/postgres"

    def ask(self, query: str) -> str:
        """What a query gives, as unaligned text. Raises CalledProcessError when it fails."""
        command = [_binary("psql"), self.url, "--no-psqlrc", "-Atc", query]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A new cluster for the length of the block. Raises FileNotFoundError where PostgreSQL is not installed."""
    initdb, control = _binary("initdb"), _binary("pg_ctl")
    # Not below a folder of ours, which its user may not enter.
    folder = Path(tempfile.mkdtemp(prefix="fanfold-postgres-"))
    user = _user()
    facts: dict[str, Any] = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    name = "postgres"
    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        data, port = folder / "data", free_port()
        _run([initdb, "-D", str(data), "-U", name, "-A", "trust", "--no-locale", "-E", "UTF8"], folder, facts)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        options += f" -c max_connections={CONNECTIONS}"
        _run([control, "-D", str(data), "-l", str(folder / "log"), "-o", options, "-w", "start"], folder, facts)
        try:
            yield Cluster(port=port, user=name)
        finally:
            _run([control, "-D", str(data), "-m", "fast", "-w", "stop"], folder, facts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: Sequence[str], folder: Path, facts: dict[str, Any]) -> None:
    with (folder / "commands.log").open("ab") as log:
        subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True, **facts)


def _user() -> pwd.struct_passwd | None:
    """Whom the cluster belongs to; None: whoever we are."""
    if os.geteuid() != 0:
        return None
    for name in USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise LookupError(f"root must not run PostgreSQL, and there is none of the users {USERS}")


def _binary(name: str) -> str:
    found = shutil.which(name) or next((str(path) for path in sorted(DEBIAN.glob(f"*/bin/{name}"), reverse=True)), None)
    if found is None:
        raise FileNotFoundError(f"{name} is not there: apt-get install postgresql")
    return found
