"""Deploys the CDK app into an emulator with CDK's command line, and reads the stack's outputs."""

from __future__ import annotations

import json
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanfold.local import emulator, local_stack, toolchain
from fanfold.local.local_stack import LocalError, LocalStack

ACCOUNT = "000000000000"
"""The account id of emulators for dummy credentials."""

STACK = "fanfold-local"

LEDGER = "ledger.jsonl"
"""In the state folder: the file that `chaos.effect` appends to."""

Report = Callable[[str], None]
"""Receives one line about a finished action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `fanfold up`. None means the default, or the value of the running stack.

    `project` is the folder of the CDK app.
    """

    project: Path = local_stack.CHECKOUT
    port: int | None = None
    endpoint: str | None = None
    api: str = "http"
    workers: str = "lambda"
    max_queue_depth: int | None = None
    settings: Mapping[str, Any] | None = None


@contextmanager
def timed(report: Report, what: str) -> Iterator[Report]:
    """Report an action, its result and its duration."""
    begin = time.monotonic()
    outcome: list[str] = []
    yield outcome.append
    report(f"{what:<20} {' '.join(outcome):<48} {time.monotonic() - begin:5.1f} s")


def deployed(options: Options, *, endpoint: str, state: Path, environ: Mapping[str, str], report: Report) -> LocalStack:
    """Deploy the app to the emulator at `endpoint`. The returned stack has no token yet.

    Raises `LocalError` naming the log when CDK fails.
    """
    ledger = state / LEDGER
    outputs = state / "outputs.json"
    outputs.unlink(missing_ok=True)
    log = state / "deploy.log"
    env = cdk_environment(environ, endpoint)
    bare = [str(toolchain.cdk_path(options.project)), "--no-notices"]
    with timed(report, "cdk bootstrap"):
        toolchain.run(
            [*bare, "bootstrap", f"aws://{ACCOUNT}/{local_stack.REGION}"],
            env,
            log=log,
            seconds=toolchain.CDK_SECONDS,
            failure="`cdk bootstrap` failed",
            folder=state,  # without a cdk.json, so that it does not synthesise the app again
        )
    app = app_arguments(options, endpoint=endpoint, state=state)
    with timed(report, "cdk deploy") as said:
        toolchain.run(
            [*bare, "deploy", "--all", *app, "--require-approval", "never", "--outputs-file", str(outputs)],
            env,
            log=log,
            seconds=toolchain.CDK_SECONDS,
            failure="`cdk deploy` failed",
            folder=options.project,
        )
        said(f"stack {STACK}")
    facts = json.loads(outputs.read_text(encoding="utf-8"))[STACK]
    return _described(facts, endpoint=endpoint, ledger=ledger, options=options)


def app_arguments(options: Options, *, endpoint: str, state: Path) -> list[str]:
    """The environment that tells the CDK command line app, context and output folder."""
    settings = dict(options.settings or {})
    if options.max_queue_depth is not None:
        settings["max_queue_depth"] = options.max_queue_depth
    context = {"local": "true", "stack": STACK, "ledger": str(state / LEDGER), "api": options.api}
    if settings:
        context["settings"] = json.dumps(settings)
    if options.workers == "none":
        context["mappings"] = "false"
    if not emulator.runs_functions_here(endpoint):
        # Containers need the dependency layer, and run fastest on this machine's architecture.
        context["layer"] = "true"
        context["architecture"] = "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x86_64"
    # The synth must use this environment's Python, whatever cdk.json says.
    app = ["--app", f'"{sys.executable}" app.py', "--output", str(state / "cdk.out")]
    return app + [word for name, value in context.items() for word in ("-c", f"{name}={value}")]


def cdk_environment(environ: Mapping[str, str], endpoint: str) -> dict[str, str]:
    """The environment with which the CDK command line deploys to an emulator and nowhere else."""
    own = {name: value for name, value in environ.items() if not name.startswith(("AWS_", "FANFOLD_"))}
    return {
        **own,
        **local_stack.DUMMY_CREDENTIALS,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": local_stack.REGION,
        "AWS_DEFAULT_REGION": local_stack.REGION,
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        # CDK's own template validation costs ten seconds; `make synth` and the template tests run it.
        "CDK_VALIDATION": "false",
    }


def _described(facts: Mapping[str, str], *, endpoint: str, ledger: Path, options: Options) -> LocalStack:
    """The stack by its CloudFormation outputs."""
    env = json.loads(facts["Settings"])
    from fanfold.service.settings import Settings  # not installed with the client alone

    classes = Settings.from_env(env).classes
    return LocalStack(
        api_url=local_api_url(facts["ApiUrl"], endpoint),
        token="",
        endpoint=endpoint,
        region=local_stack.REGION,
        table=facts["Table"],
        bucket=facts["Bucket"],
        stack=STACK,
        ledger=str(ledger),
        queues={name: given.queues for name, given in classes.items()},
        env=env,
        functions=json.loads(facts["Functions"]),
        log_groups=json.loads(facts["LogGroups"]),
        options={"api": options.api, "workers": options.workers, "max_queue_depth": options.max_queue_depth},
    )


def local_api_url(stated: str, endpoint: str) -> str:
    """The address of an API in an emulator, because the host name in the output resolves nowhere.

    A REST API's address contains its stage, an HTTP API's does not.
    """
    found = re.match(r"https?://([a-z0-9]+)\.execute-api\.[^/]+/(\w*)", stated)
    if found is None:
        raise LocalError(f"The deployed API's address {stated!r} is of no kind known here.")
    api_id, stage = found.groups()
    if stage:
        return f"{endpoint}/restapis/{api_id}/{stage}/_user_request_"
    # A shell would expand `$default` as a variable.
    return f"{endpoint}/_aws/execute-api/{api_id}/%24default"
