"""Reads JSON from the command line, a file or stdin, by the API's rules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from fanfold.engine.payload import parse
from fanfold.text.printable import shown

BOM = "\ufeff"
"""Editors of Windows put it before UTF-8 text; it is no part of the JSON (RFC 8259, section 8.1)."""


def json_of(text: str, what: str) -> Any:
    """The JSON of an option or argument, or of the file that it names (`@FILE`, `@-`). Raises `typer.BadParameter`.

    Like the API it refuses duplicate keys, NaN, and numbers out of range.
    """
    given = text
    try:
        if text.startswith("@"):
            text = text_of(text[1:], what)
        return parse(text)
    except ValueError as error:
        meant = f"; @{given} is the file" if _is_file(given) else ""
        raise typer.BadParameter(f"{what} is not JSON: {shown(error)}{meant}") from error


def text_of(file: str, what: str) -> str:
    """The text of a file, or of stdin (`-`), without a byte order mark. Raises `typer.BadParameter`."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{what}: {file} is not UTF-8") from error
    except (OSError, ValueError) as error:  # a name with a zero in it is a ValueError
        raise typer.BadParameter(f"{what}: {file}: {getattr(error, 'strerror', None) or error}") from error
    return text.removeprefix(BOM)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a zero in it
        return False
