"""Idempotency keys as the commands take them."""

from __future__ import annotations

from typing import Annotated

import typer

from fanfold.client.calls import keyed


def checked(key: str | None) -> str | None:
    """The key as it is. Raises `typer.BadParameter` for one that no request can carry."""
    try:
        if key:
            keyed(key)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return key


Key = Annotated[str | None, typer.Option(callback=checked, help="Idempotency key: the same key is the same request.")]
SubmitKey = Annotated[
    str | None, typer.Option("--key", callback=checked, help="Idempotency key: the same key is the same run.")
]
