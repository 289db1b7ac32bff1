"""`.fanfold/local.json`: what is known of the local stack, where it lies, and whom a command talks to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

STATE_FOLDER = ".fanfold"
FILE = "local.json"

CHECKOUT = Path(__file__).resolve().parent.parent
"""The folder that holds this package, and in a checkout also the CDK app and the examples."""

REGION = "us-east-1"
"""The one region of the local stack."""

DUMMY_CREDENTIALS: Mapping[str, str] = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
"""What local emulators accept; no real account has these."""


class LocalError(Exception):
    """The local stack can't be had; `status` is the command's exit status (2 usage, 4 not reachable)."""

    def __init__(self, message: str, *, status: int = 4) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStack:
    """A deployed local stack.

    `env` is the environment its functions have; `queues` maps class and role to a queue URL;
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

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of a process that works on this stack: `environ` over the deployment's settings.

        `AWS_ENDPOINT_URL` in `environ` wins too; region and credentials are always the stack's, or a
        developer's real ones would look for the tables elsewhere.
        """
        own = {**self.env, **environ}
        # An empty one counts as absent: boto3 would take it for none, and go to the real AWS.
        own["AWS_ENDPOINT_URL"] = environ.get("AWS_ENDPOINT_URL") or self.endpoint
        own.pop("AWS_PROFILE", None)
        return own | {"AWS_REGION": self.region, "AWS_DEFAULT_REGION": self.region, **DUMMY_CREDENTIALS}


def project_folder(start: Path) -> Path | None:
    """The nearest folder, from `start` upwards, that has a `.fanfold` in it; None when there is none."""
    for folder in (start, *start.parents):
        if (folder / STATE_FOLDER).is_dir():
            return folder
    return None


def state_folder(start: Path) -> Path:
    """Where the state of the project around `start` lies (absolute, perhaps not there yet): else this checkout's."""
    return (project_folder(start.resolve()) or CHECKOUT) / STATE_FOLDER


def read(state: Path) -> LocalStack | None:
    """The stack a state folder tells of; None when it tells of none.

    Raises `LocalError` (usage) for a file that is no such thing.
    """
    path = state / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        known = {f.name for f in fields(LocalStack)}
        return LocalStack(**{name: value for name, value in data.items() if name in known})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        raise LocalError(f"{path} can't be read ({error}); `fanfold down` removes it.", status=2) from error


def write(state: Path, stack: LocalStack) -> None:
    """Write the file whole or not at all, readable by its owner only: it holds a token."""
    state.mkdir(parents=True, exist_ok=True)
    draft = state / f"{FILE}.new"
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(asdict(stack), indent=2) + "\n", encoding="utf-8")
    os.replace(draft, state / FILE)


def remove(state: Path) -> None:
    """Forget the stack."""
    (state / FILE).unlink(missing_ok=True)


def target(environ: Mapping[str, str], start: Path) -> tuple[str, str | None]:
    """The API's URL and token a command uses: `FANFOLD_URL` and `FANFOLD_TOKEN`, else the local stack's.

    Raises `LocalError` (usage) when neither says.
    """
    url, token = environ.get("FANFOLD_URL"), environ.get("FANFOLD_TOKEN")
    if url:
        return url, token
    stack = read(state_folder(start))
    if stack is None:
        raise LocalError(
            "No API to talk to: set FANFOLD_URL and FANFOLD_TOKEN, or start a local stack with `fanfold up`.", status=2
        )
    return stack.api_url, token or stack.token
