"""Cursors: opaque, checked strings that say where a list continues.

The check binds a cursor to its list. It is no secret: a forged cursor only continues the caller's own list at another
place, because the tenant comes from the token alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from fanfold.engine.errors import InvalidCursor


def encode(slot: str, listing: str) -> str:
    """The cursor for a place (ASCII) in a list. `listing` is any text that identifies the list."""
    return _text(f"{slot} {_check(slot, listing)}")


def decode(cursor: str, listing: str) -> str:
    """The place in a cursor. Raises `InvalidCursor` if it is malformed or belongs to another list."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise InvalidCursor("the cursor is broken") from error
    slot, _, check = text.rpartition(" ")
    # base64 has several spellings of one text; only one of them came from here.
    if _text(text) != cursor or check != _check(slot, listing):
        raise InvalidCursor("the cursor is broken, or belongs to another listing")
    return slot


def _text(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode("ascii")).decode("ascii").rstrip("=")


def _check(slot: str, listing: str) -> str:
    return hashlib.sha256(f"{listing}\0{slot}".encode()).hexdigest()[:16]
