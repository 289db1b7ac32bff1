"""`fanfold up` and `fanfold down`: deploys the CDK app into an emulator, and stops it."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from fanfold import project
from fanfold.client.errors import ApiError
from fanfold.client.sync_client import Client
from fanfold.local import emf_forwarder, emulator, local_stack, tokens, toolchain
from fanfold.local.cdk_app import Options, Report, deployed, timed
from fanfold.local.local_stack import LocalError, LocalStack

DEFAULT_PORT = 4566
"""LocalStack's port, which compatible emulators share."""

TENANT = "local"
"""The tenant of `up`'s token."""


def up(options: Options, *, state: Path, environ: Mapping[str, str], report: Report) -> LocalStack:
    """Bring the local stack up, or up to date, and write `local.json`. Safe to repeat.

    Raises `LocalError` with one sentence, after it has stopped what it started.
    """
    local_stack.make(state)
    with local_stack.serving(state):  # no other process may serve it from a file
        return _up(options, state=state, environ=environ, report=report)


def _up(options: Options, *, state: Path, environ: Mapping[str, str], report: Report) -> LocalStack:
    known = running(state)
    previous = local_stack.read(state)
    port = options.port or (known.port if known and known.port else DEFAULT_PORT)
    endpoint = (options.endpoint or f"http://{emulator.HOST}:{port}").rstrip("/")
    if known and known.endpoint != endpoint:
        raise LocalError(f"A local stack is up at {known.endpoint} already: `fanfold down` stops it.", status=2)
    own = options.endpoint is None or known is not None
    toolchain.check_node(environ, options.project)
    _check_lock(options.project)
    if not own and not emulator.answers(endpoint):
        raise LocalError(f"No AWS emulator answers at {endpoint}.")
    if own and known is None:
        emulator.check_version()
        emulator.check_port(port)
        _stop_bridge(local_stack.read(state), state)
        local_stack.remove(state)  # that stack is gone
        emf_forwarder.forget(state)
    log = state / "deploy.log"
    log.write_bytes(b"")
    with timed(report, "CDK command line") as said:
        said("installed" if toolchain.install_cdk(environ, log, options.project) else "there already")
    started: int | None = None
    deployed_to: str | None = None
    try:
        if own and known is None:
            with timed(report, "emulator") as said:
                started = emulator.start(port, state, environ)
                said(f"listens on {endpoint}")
        pid = started or (known.pid if known else None)
        stack = deployed(options, endpoint=endpoint, state=state, environ=environ, report=report)
        deployed_to = endpoint
        stack = replace(stack, port=port if own else None, pid=pid)
        _complete(stack)
        with timed(report, "token and workflows") as said:
            stack = _with_token(stack, previous)
            said(", ".join(_apply(stack, options.project)) or "no workflows here")
        return _with_bridge(stack, previous, state=state, environ=environ)
    except BaseException as error:
        if started is not None:
            _stop_bridge(local_stack.read(state), state)
            local_stack.remove(state)
            emulator.stop(started, port, state)
        elif deployed_to is not None and isinstance(error, Exception):
            raise _unfinished(error, deployed_to) from error
        raise


def _unfinished(error: Exception, endpoint: str) -> LocalError:
    """The message about a failure that leaves a stack in a foreign emulator."""
    said = str(error) or type(error).__name__
    return LocalError(
        f"{said.rstrip('.')}. What was deployed stays in the emulator at {endpoint}, unfinished:"
        " `fanfold up` with the same options goes on from here.",
        status=error.status if isinstance(error, LocalError) else 4,
    )


def _with_bridge(
    stack: LocalStack, previous: LocalStack | None, *, state: Path, environ: Mapping[str, str]
) -> LocalStack:
    """Save the stack, and start the process that puts its metrics into CloudWatch unless it runs."""
    if previous is not None and previous.bridge_pid is not None:
        if previous.endpoint == stack.endpoint and emf_forwarder.is_ours(previous.bridge_pid, state):
            stack = replace(stack, bridge_pid=previous.bridge_pid)
            local_stack.write(state, stack)
            return stack
        _stop_bridge(previous, state)
    local_stack.write(state, stack)  # the bridge reads it
    stack = replace(stack, bridge_pid=emf_forwarder.start(state, environ))
    local_stack.write(state, stack)
    return stack


def _stop_bridge(stack: LocalStack | None, state: Path) -> None:
    if stack is not None and stack.bridge_pid is not None:
        emf_forwarder.stop(stack.bridge_pid, state)


def down(*, state: Path) -> bool:
    """Stop what `up` started and forget it. Returns whether anything ran. Raises `LocalError`, see `check_own`."""
    local_stack.check_own(state)
    try:
        stack = local_stack.read(state)
    except LocalError:
        stack = None  # an unreadable file names no process to stop
    there = (state / local_stack.FILE).exists()
    _stop_bridge(stack, state)
    if stack is not None and stack.pid is not None and stack.port is not None:
        emulator.stop(stack.pid, stack.port, state)
    local_stack.remove(state)
    return there


def running(state: Path) -> LocalStack | None:
    """The stack of this state folder if its own emulator still runs. A dead one is forgotten."""
    stack = local_stack.read(state)
    if stack is None or stack.pid is None or stack.port is None:
        return None
    return stack if emulator.is_ours(stack.pid, stack.port, state) else None


def elsewhere(state: Path) -> LocalStack | None:
    """The stack of this state folder in an emulator that somebody else started and that still answers."""
    stack = local_stack.read(state)
    if stack is None or stack.pid is not None or stack.on_file:
        return None
    return stack if emulator.answers(stack.endpoint) else None


def _complete(stack: LocalStack) -> None:
    """Set what emulators lose of the template. Raises `LocalError` if an emulator refuses."""
    from botocore.exceptions import BotoCoreError, ClientError

    from fanfold.doctor.emulated import complete  # with boto3, which no other command needs

    try:
        complete(stack, now=datetime.now(UTC))
    except (BotoCoreError, ClientError) as error:
        raise LocalError(f"The deployed stack could not be completed: {error}.") from error


def _with_token(stack: LocalStack, previous: LocalStack | None) -> LocalStack:
    """The stack with a token of all scopes: its previous one if that still works."""
    if previous is not None and previous.api_url == stack.api_url and previous.token:
        # If the old token does not work for any reason, a new one is created below.
        with Client(previous.api_url, previous.token, retry_for_seconds=10) as client, contextlib.suppress(ApiError):
            client.queues()
            return replace(stack, token=previous.token)
    environ = stack.environment({})  # without the caller's variables: the stack was just deployed
    made, _ = tokens.create(
        environ,
        tenant=TENANT,
        owner="fanfold up",
        scopes=tokens.ALL_SCOPES,
        now=datetime.now(UTC),
        draw=secrets.token_bytes,
    )
    return replace(stack, token=made)


def _apply(stack: LocalStack, folder: Path) -> list[str]:
    """Register every workflow of the project; returns their names. Raises `LocalError` naming an invalid one."""
    names = []
    # The first call of a fresh function takes seconds on an emulator.
    with Client(stack.api_url, stack.token, retry_for_seconds=60) as client:
        for path in _project(folder).workflow_files():
            try:
                names.append(client.apply(path.read_bytes())["name"])
            except (ApiError, ValueError) as error:
                raise LocalError(f"{path.name} could not be applied: {error}") from error
    return names


def _check_lock(folder: Path) -> None:
    lock = _project(folder).lock_file
    if not lock.is_file():
        raise LocalError(f"There is no {lock}: `fanfold lock` pins what the functions need.", status=2)


def _project(folder: Path) -> project.Project:
    try:
        return project.at(folder)
    except project.ProjectError as error:
        raise LocalError(f"{error}.", status=2) from error


def as_json(stack: LocalStack) -> str:
    """The content of `local.json`, which `--json` prints."""
    return json.dumps(asdict(stack), indent=2)
