"""`.fanfold/local.json`: the local stack's facts, the file's location, and the API that a command uses."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fanfold.project import is_project

STATE_FOLDER = ".fanfold"
FILE = "local.json"
LOCK = "serving.lock"

CHECKOUT = Path(__file__).resolve().parents[2]
"""The folder that holds this package: in a checkout a project, the one that is deployed where none is named."""

REGION = "us-east-1"
"""The one region of the local stack."""

DUMMY_CREDENTIALS: Mapping[str, str] = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
"""Dummy credentials, which emulators accept."""


OWN_VARIABLES = "FANFOLD_"
"""The prefix of setting variables. The file sets no other variables of a process."""

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class LocalError(Exception):
    """An error about the local stack. `status` is the command's exit status (2 usage, 4 not reachable)."""

    def __init__(self, message: str, *, status: int = 4) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStack:
    """A deployed local stack.

    `env` is the settings in its functions' environment; `queues` maps class and role to a queue URL;
    `ledger` is the absolute path to which `chaos.effect` appends; `log_groups` are the functions', by the
    same names as `functions`; `pid` is the emulator's, None where `--endpoint` named somebody else's;
    `bridge_pid` that of the process that feeds the stack's metrics into its CloudWatch.
    """

    api_url: str
    token: str
    endpoint: str
    region: str
    table: str
    bucket: str
    stack: str
    ledger: str
    queues: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    log_groups: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    port: int | None = None
    pid: int | None = None
    bridge_pid: int | None = None

    @property
    def on_file(self) -> bool:
        """Whether it is one process with one file (`fanfold dev` or `serve`), not a stack."""
        return not self.endpoint

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of a process that works on this stack: `environ` over the deployment's settings.

        Of `env` only our own names count. `AWS_ENDPOINT_URL` in `environ` wins too; region and credentials are always
        the stack's, or a developer's real ones would look for the tables elsewhere.
        """
        settings = {name: value for name, value in self.env.items() if name.startswith(OWN_VARIABLES)}
        own = {**settings, **environ}
        if self.on_file:  # tasks there call the user's own AWS account
            return own
        # An empty variable counts as absent, because boto3 would call the real AWS.
        own["AWS_ENDPOINT_URL"] = environ.get("AWS_ENDPOINT_URL") or self.endpoint
        own.pop("AWS_PROFILE", None)
        return own | {"AWS_REGION": self.region, "AWS_DEFAULT_REGION": self.region, **DUMMY_CREDENTIALS}


@contextmanager
def serving(state: Path) -> Iterator[None]:
    """Lock the folder while a process serves the project. Raises `LocalError` if another process does."""
    with (state / LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            known = read(state)
            where = f" at {known.api_url}" if known is not None else ""
            raise LocalError(f"This project is being served{where} already.", status=2) from None
        yield


def project_folder(start: Path) -> Path | None:
    """The nearest folder, from `start` upwards, that has a `.fanfold` in it or is a project; None where none is."""
    for folder in (start, *start.parents):
        if (folder / STATE_FOLDER).is_dir() or is_project(folder):
            return folder
    return None


def state_folder(start: Path) -> Path:
    """The state folder of the project around `start` (absolute; it may not exist yet).

    Outside of a project it is that of this library's checkout, else of the folder itself.
    """
    start = start.resolve()
    return (project_folder(start) or (CHECKOUT if is_project(CHECKOUT) else start)) / STATE_FOLDER


def check_own(state: Path) -> None:
    """Raise `LocalError` (usage) unless an existing state folder and its file belong to the user.

    Another writer could change where commands send data, and the settings of workers.
    """
    for path in (state, state / FILE):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        if hasattr(os, "getuid") and found.st_uid != os.getuid():
            raise LocalError(
                f"{path} is another user's and is not read: make a {STATE_FOLDER} of your own"
                " in your project's folder, or set FANFOLD_URL and FANFOLD_TOKEN.",
                status=2,
            )
        if found.st_mode & OTHERS_WRITE and os.name == "posix":
            raise LocalError(f"{path} is not read, for others may write to it: `chmod go-w {path}`.", status=2)


def read(state: Path) -> LocalStack | None:
    """The stack of a state folder; None if there is none.

    Raises `LocalError` (usage) for a malformed file; see also `check_own`.
    """
    check_own(state)
    path = state / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        known = {f.name for f in fields(LocalStack)}
        stack = LocalStack(**{name: value for name, value in data.items() if name in known})
        _check_kinds(stack)
        return stack
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        raise LocalError(f"{path} can't be read ({error}); `fanfold down` removes it.", status=2) from error


def _check_kinds(stack: LocalStack) -> None:
    """Raise TypeError for a value of the wrong type."""
    for name in ("api_url", "token", "endpoint", "region", "table", "bucket", "stack", "ledger"):
        if not isinstance(getattr(stack, name), str):
            raise TypeError(f"{name} is no text")
    for name in ("port", "pid", "bridge_pid"):
        if not isinstance(getattr(stack, name), int | None):
            raise TypeError(f"{name} is no number")
    texts = {"env": stack.env, "functions": stack.functions, "log_groups": stack.log_groups}
    for name, found in [*texts.items(), *((f"queues of {name}", each) for name, each in stack.queues.items())]:
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise TypeError(f"{name} is no object of texts")


def make(state: Path) -> None:
    """Create the folder for its owner alone. Raises `LocalError` if it belongs to another user."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_own(state)


def write(state: Path, stack: LocalStack) -> None:
    """Write the file atomically, readable by its owner only, because it contains a token."""
    make(state)
    draft = state / f"{FILE}.new"
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(asdict(stack), indent=2) + "\n", encoding="utf-8")
    os.replace(draft, state / FILE)


def remove(state: Path) -> None:
    """Forget the stack."""
    (state / FILE).unlink(missing_ok=True)


def target(environ: Mapping[str, str], start: Path) -> tuple[str, str | None]:
    """The API's URL and token a command uses: `FANFOLD_URL` and `FANFOLD_TOKEN`, else the local stack's.

    Both come from the same place, so that a token never goes to a foreign address. Raises `LocalError`
    (usage) when neither place says, and for a token in the environment without an address.
    """
    url, token = environ.get("FANFOLD_URL"), environ.get("FANFOLD_TOKEN")
    if url:
        return url, token
    if token:
        raise LocalError(
            "FANFOLD_TOKEN is set, but FANFOLD_URL is not: set the address that the token is for,"
            " or neither, for the local stack.",
            status=2,
        )
    stack = read(state_folder(start))
    if stack is None:
        raise LocalError(
            "No API to talk to: set FANFOLD_URL and FANFOLD_TOKEN, or start one with `fanfold dev` or `fanfold up`.",
            status=2,
        )
    return stack.api_url, stack.token
