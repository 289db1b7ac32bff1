"""Checks that all functions have the same code and settings, and the same version as this command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from fanfold.client.errors import ApiError
from fanfold.client.sync_client import Client
from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding
from fanfold.service.settings import Settings
from fanfold.service.version import VERSION

DEPLOY = "Deploy again. If CloudFormation sees nothing to do, update that function's code by hand from the others'."
RETRY_SECONDS = 10.0
"""A cold function takes seconds to answer."""


def find(deployment: Deployment) -> Iterator[Finding]:
    """Functions that differ in code, runtime, layers or settings; an API of another version."""
    functions = deployment.functions
    yield from _odd(functions, "code", lambda each: str(each["CodeSha256"]))
    yield from _odd(functions, "Python", lambda each: str(each["Runtime"]))
    yield from _odd(functions, "layers", lambda each: " ".join(layer["Arn"] for layer in each.get("Layers", ())))
    for name, each in functions.items():
        differing = _differing(deployment.settings, each.get("Environment", {}).get("Variables", {}))
        if differing:
            yield Finding(
                what=f"{name} has other settings than the stack states: {', '.join(differing)}.",
                why="Promises depend on functions that agree about leases, limits and names.",
                fix="Deploy again; change settings with `-c settings=…`, never on the function.",
            )
    yield from _layers(deployment)
    yield from _version(deployment)


def _odd(
    functions: Mapping[str, Mapping[str, Any]], what: str, of: Callable[[Mapping[str, Any]], str]
) -> Iterator[Finding]:
    values = {name: of(each) for name, each in functions.items()}
    usual = [value for value, _ in Counter(values.values()).most_common(1)]
    odd = [name for name, value in values.items() if value not in usual]
    if odd:
        yield Finding(
            what=f"{', '.join(odd)}: other {what} than the other functions have.",
            why="All functions are one program, deployed together. A deployment broke off, or somebody changed one.",
            fix=DEPLOY,
        )


def _differing(stated: Settings, environ: Mapping[str, str]) -> list[str]:
    """The settings that a function's environment says otherwise, but for its state machines, which only some know."""
    try:
        found = _without_machines(Settings.from_env(environ))
    except ValueError as error:
        return [str(error)]
    expected = _without_machines(stated)
    return [f.name for f in fields(Settings) if getattr(found, f.name) != getattr(expected, f.name)]


def _without_machines(settings: Settings) -> Settings:
    return replace(
        settings, classes={name: replace(given, state_machine="") for name, given in settings.classes.items()}
    )


def _layers(deployment: Deployment) -> Iterator[Finding]:
    client = deployment.client("lambda")
    runtimes = {each["Runtime"] for each in deployment.functions.values()}
    for arn in {layer["Arn"] for each in deployment.functions.values() for layer in each.get("Layers", ())}:
        made_for = client.get_layer_version_by_arn(Arn=arn).get("CompatibleRuntimes") or sorted(runtimes)
        if not runtimes <= set(made_for):
            yield Finding(
                what=f"The dependency layer is made for {', '.join(made_for)},"
                f" functions run {', '.join(sorted(runtimes))}.",
                why="Compiled packages of another Python can't be imported: functions fail at their start.",
                fix="Deploy again, so that layer and functions are of one synth.",
            )


def _version(deployment: Deployment) -> Iterator[Finding]:
    try:
        with Client(deployment.api_url, retry_for_seconds=RETRY_SECONDS) as client:
            deployed = client.health()["version"]
    except ApiError as error:
        yield Finding(
            what=f"The API gives no answer: {error}.",
            why="Nobody can submit a run or read one.",
            fix="See docs/operations.md#function-errors and #throttled-functions.",
        )
        return
    if deployed != VERSION:
        yield Finding(
            what=f"The API runs version {deployed}, this command is {VERSION}.",
            why="What is checked here is what this version means; a `fanfold worker` of another version may write"
            " records that the deployed code can't read.",
            fix="Deploy this version, or install the deployed one.",
        )


CHECK = Check(name="code", looks_at="code, runtime, layers and settings of all functions, and their version", find=find)
