"""`fanfold up` and `fanfold down`: the CDK app deployed into an emulator, ready to take runs."""

from __future__ import annotations

import contextlib
import json
import platform
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fanfold import bridge, emulator, local, tokens, toolchain
from fanfold.client import Client
from fanfold.local import CHECKOUT, LocalError, LocalStack
from fanfold.problems import ApiError

DEFAULT_PORT = 4566
"""The port that LocalStack and everything that speaks its protocol share."""

ACCOUNT = "000000000000"
"""The account in which emulators put what their dummy credentials make."""

STACK = "fanfold-local"

LEDGER = "ledger.jsonl"
"""In the state folder: the file that `chaos.effect` appends to."""

TENANT = "local"
"""Whose token `up` makes."""

Report = Callable[[str], None]
"""Takes one line about what was just done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `fanfold up` was asked for; None leaves it to the default, or to what is up already."""

    port: int | None = None
    endpoint: str | None = None
    api: str = "http"
    workers: str = "lambda"
    max_queue_depth: int | None = None
    settings: Mapping[str, Any] | None = None


def up(options: Options, *, state: Path, environ: Mapping[str, str], report: Report) -> LocalStack:
    """Bring the local stack up, or up to date, and write `local.json`. Safe to repeat.

    Raises `LocalError` with one sentence; what this call had started is then stopped again.
    """
    known = running(state)
    previous = local.read(state)
    port = options.port or (known.port if known and known.port else DEFAULT_PORT)
    endpoint = (options.endpoint or f"http://{emulator.HOST}:{port}").rstrip("/")
    if known and known.endpoint != endpoint:
        raise LocalError(f"A local stack is up at {known.endpoint} already: `fanfold down` stops it.", status=2)
    own = options.endpoint is None or known is not None
    toolchain.check_node(environ)
    if not own and not emulator.answers(endpoint):
        raise LocalError(f"No AWS emulator answers at {endpoint}.")
    if own and known is None:
        emulator.check_version()
        emulator.check_port(port)
        _stop_bridge(local.read(state), state)
        local.remove(state)  # what it told of is gone
        bridge.forget(state)
    state.mkdir(parents=True, exist_ok=True)
    log = state / "deploy.log"
    log.write_bytes(b"")
    with _timed(report, "CDK command line") as said:
        said("installed" if toolchain.install_cdk(environ, log) else "there already")
    started: int | None = None
    try:
        if own and known is None:
            with _timed(report, "emulator") as said:
                started = emulator.start(port, state, environ)
                said(f"listens on {endpoint}")
        pid = started or (known.pid if known else None)
        stack = _deploy(options, endpoint=endpoint, state=state, environ=environ, report=report)
        stack = replace(stack, port=port if own else None, pid=pid)
        _complete(stack)
        with _timed(report, "token and examples") as said:
            stack = _with_token(stack, previous)
            said(", ".join(_apply_examples(stack)) or "no examples here")
    except BaseException:
        if started is not None:
            emulator.stop(started, port, state)
        raise
    return _with_bridge(stack, previous, state=state, environ=environ)


def _with_bridge(
    stack: LocalStack, previous: LocalStack | None, *, state: Path, environ: Mapping[str, str]
) -> LocalStack:
    """Write the stack down, and have its metrics fed into its CloudWatch: by the process that does already, if any."""
    if previous is not None and previous.bridge_pid is not None:
        if previous.endpoint == stack.endpoint and bridge.is_ours(previous.bridge_pid, state):
            stack = replace(stack, bridge_pid=previous.bridge_pid)
            local.write(state, stack)
            return stack
        _stop_bridge(previous, state)
    local.write(state, stack)  # the bridge reads it
    stack = replace(stack, bridge_pid=bridge.start(state, environ))
    local.write(state, stack)
    return stack


def _stop_bridge(stack: LocalStack | None, state: Path) -> None:
    if stack is not None and stack.bridge_pid is not None:
        bridge.stop(stack.bridge_pid, state)


def down(*, state: Path) -> bool:
    """Stop what `up` started and forget it; says whether there was anything."""
    try:
        stack = local.read(state)
    except LocalError:
        stack = None  # a file nobody can read names no process to stop
    there = (state / local.FILE).exists()
    _stop_bridge(stack, state)
    if stack is not None and stack.pid is not None and stack.port is not None:
        emulator.stop(stack.pid, stack.port, state)
    local.remove(state)
    return there


def running(state: Path) -> LocalStack | None:
    """The stack of this state folder whose own emulator still runs; one that died is forgotten."""
    stack = local.read(state)
    if stack is None or stack.pid is None or stack.port is None:
        return None
    return stack if emulator.is_ours(stack.pid, stack.port, state) else None


def elsewhere(state: Path) -> LocalStack | None:
    """The stack of this state folder in an emulator that somebody else started and that still answers."""
    stack = local.read(state)
    if stack is None or stack.pid is not None:
        return None
    return stack if emulator.answers(stack.endpoint) else None


@contextmanager
def _timed(report: Report, what: str) -> Iterator[Report]:
    """Reports what was done with what came of it and how long it took."""
    begin = time.monotonic()
    outcome: list[str] = []
    yield outcome.append
    report(f"{what:<20} {' '.join(outcome):<48} {time.monotonic() - begin:5.1f} s")


def _deploy(options: Options, *, endpoint: str, state: Path, environ: Mapping[str, str], report: Report) -> LocalStack:
    ledger = state / LEDGER
    outputs = state / "outputs.json"
    outputs.unlink(missing_ok=True)
    log = state / "deploy.log"
    env = cdk_environment(environ, endpoint)
    bare = [str(toolchain.cdk_path()), "--no-notices"]
    with _timed(report, "cdk bootstrap"):
        toolchain.run(
            [*bare, "bootstrap", f"aws://{ACCOUNT}/{local.REGION}"],
            env,
            log=log,
            seconds=toolchain.CDK_SECONDS,
            failure="`cdk bootstrap` failed",
            folder=state,  # where no cdk.json makes it synthesise the app first
        )
    app = app_arguments(options, endpoint=endpoint, state=state)
    with _timed(report, "cdk deploy") as said:
        toolchain.run(
            [*bare, "deploy", "--all", *app, "--require-approval", "never", "--outputs-file", str(outputs)],
            env,
            log=log,
            seconds=toolchain.CDK_SECONDS,
            failure="`cdk deploy` failed",
        )
        said(f"stack {STACK}")
    facts = json.loads(outputs.read_text(encoding="utf-8"))[STACK]
    return _described(facts, endpoint=endpoint, ledger=ledger, options=options)


def app_arguments(options: Options, *, endpoint: str, state: Path) -> list[str]:
    """What tells the CDK command line which app to synthesise, with which context, to where."""
    settings = dict(options.settings or {})
    if options.max_queue_depth is not None:
        settings["max_queue_depth"] = options.max_queue_depth
    context = {"local": "true", "stack": STACK, "ledger": str(state / LEDGER), "api": options.api}
    if settings:
        context["settings"] = json.dumps(settings)
    if options.workers == "none":
        context["mappings"] = "false"
    if not emulator.runs_functions_here(endpoint):
        # Containers have none of our dependencies, and are best of the machine's own kind.
        context["layer"] = "true"
        context["architecture"] = "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x86_64"
    # The synth must use this environment's Python, wherever cdk.json believes that to be.
    app = ["--app", f'"{sys.executable}" app.py', "--output", str(state / "cdk.out")]
    return app + [word for name, value in context.items() for word in ("-c", f"{name}={value}")]


def cdk_environment(environ: Mapping[str, str], endpoint: str) -> dict[str, str]:
    """The environment in which the CDK command line deploys to an emulator, and nowhere else."""
    own = {name: value for name, value in environ.items() if not name.startswith(("AWS_", "FANFOLD_"))}
    return {
        **own,
        **local.DUMMY_CREDENTIALS,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": local.REGION,
        "AWS_DEFAULT_REGION": local.REGION,
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        # CDK's own template validation costs ten seconds; `make synth` and the template tests run it.
        "CDK_VALIDATION": "false",
    }


def _described(facts: Mapping[str, str], *, endpoint: str, ledger: Path, options: Options) -> LocalStack:
    """The stack as its CloudFormation outputs tell of it."""
    env = json.loads(facts["Settings"])
    classes = json.loads(env["FANFOLD_CLASSES"])
    return LocalStack(
        api_url=local_api_url(facts["ApiUrl"], endpoint),
        token="",
        endpoint=endpoint,
        region=local.REGION,
        table=facts["Table"],
        bucket=facts["Bucket"],
        stack=STACK,
        ledger=str(ledger),
        queues={name: given["queues"] for name, given in classes.items()},
        env=env,
        functions=json.loads(facts["Functions"]),
        log_groups=json.loads(facts["LogGroups"]),
        options={"api": options.api, "workers": options.workers, "max_queue_depth": options.max_queue_depth},
    )


def local_api_url(stated: str, endpoint: str) -> str:
    """Where an emulator serves an API: the host name that CloudFormation states resolves nowhere.

    A REST API's address has its stage in it, an HTTP API's none.
    """
    found = re.match(r"https?://([a-z0-9]+)\.execute-api\.[^/]+/(\w*)", stated)
    if found is None:
        raise LocalError(f"The deployed API's address {stated!r} is of no kind known here.")
    api_id, stage = found.groups()
    if stage:
        return f"{endpoint}/restapis/{api_id}/{stage}/_user_request_"
    # As `$default` a shell would take it for a variable of its own.
    return f"{endpoint}/_aws/execute-api/{api_id}/%24default"


def _complete(stack: LocalStack) -> None:
    """What emulators lose of the template is set by hand."""
    from fanfold.doctor.emulated import complete  # with boto3, which no other command needs

    complete(stack, now=datetime.now(UTC))


def _with_token(stack: LocalStack, previous: LocalStack | None) -> LocalStack:
    """The stack with a token of all scopes: the one it had, as long as that still works."""
    if previous is not None and previous.api_url == stack.api_url and previous.token:
        # If the old one does not work any more, whatever the reason, a new one is made below.
        with Client(previous.api_url, previous.token, patience_seconds=10) as client, contextlib.suppress(ApiError):
            client.queues()
            return replace(stack, token=previous.token)
    environ = stack.environment({})  # nothing of the caller's: this is the stack just deployed
    made, _ = tokens.create(
        environ,
        tenant=TENANT,
        owner="fanfold up",
        scopes=tokens.ALL_SCOPES,
        now=datetime.now(UTC),
        draw=secrets.token_bytes,
    )
    return replace(stack, token=made)


def _apply_examples(stack: LocalStack) -> list[str]:
    """Register every document of `examples/`; gives their names. Raises `LocalError` naming a bad one."""
    names = []
    # The first call of a fresh function takes seconds on an emulator.
    with Client(stack.api_url, stack.token, patience_seconds=60) as client:
        for path in sorted((CHECKOUT / "examples").glob("*.yaml")):
            try:
                names.append(client.apply(path.read_bytes())["name"])
            except (ApiError, ValueError) as error:
                raise LocalError(f"{path.name} could not be applied: {error}") from error
    return names


def as_json(stack: LocalStack) -> str:
    """What `--json` prints: the content of `local.json`."""
    return json.dumps(asdict(stack), indent=2)
