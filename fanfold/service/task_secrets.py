"""Secrets that tasks find in their environment: a deployment knows their addresses, a process looks up the values."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

from fanfold.service.telemetry.reporting import logger

PREFIX: Final = "FANFOLD_SECRET_"
"""`FANFOLD_SECRET_KEY=secret:ARN` (Secrets Manager) or `parameter:NAME` (Systems Manager) becomes `KEY=…`."""

_found: dict[str, str] = {}

Client = Callable[[str], Any]
"""Makes the SDK's client of a service."""


def look_up(environ: MutableMapping[str, str] = os.environ, client: Client | None = None) -> None:
    """Put the value of each secret that the environment names into its variable; each is asked for once in a process.

    One that can't be had is logged, and its variable stays as it was: a task that needs it fails, and no other.
    """
    for variable, address in _wanted(environ).items():
        if address not in _found:
            try:
                _found[address] = _value(address, client or _sdk())
            except Exception as error:  # whatever it is: no rights, no such secret, no answer
                logger().error("a secret could not be read", extra={"variable": variable, "error": repr(error)[:500]})
                continue
        environ[variable] = _found[address]


def _wanted(environ: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(PREFIX): value for name, value in environ.items() if name.startswith(PREFIX)}


def _value(address: str, client: Client) -> str:
    kind, _, name = address.partition(":")
    match kind:
        case "secret":
            return str(client("secretsmanager").get_secret_value(SecretId=name)["SecretString"])
        case "parameter":
            return str(client("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])
        case _:
            raise ValueError(f"{address!r} is the address of no secret")


def _sdk() -> Client:
    from fanfold.service.botocore_session import client_factory

    return client_factory()
