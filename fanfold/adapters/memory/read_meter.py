"""What reads of records would cost in DynamoDB: calls, and read units as it would bill them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

UNIT_BYTES = 4_096
"""A read unit is one strongly consistent read of up to so much; an eventually consistent one costs half."""


class ReadMeter:
    """Counts calls by operation, and their read units.

    A query is billed by the sum of what it gives, a read by key item by item; nothing found costs as little as
    something small (DynamoDB's read consumption page).
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.units = 0.0

    def query(self, sizes: Iterable[int], *, strong: bool) -> None:
        """One query that gave items of these sizes in bytes."""
        self.calls["Query"] += 1
        self.units += _units(sum(sizes)) * (1 if strong else 0.5)

    def get(self, size: int) -> None:
        """One strong read by key, of an item of so many bytes (0: there was none)."""
        self.calls["GetItem"] += 1
        self.units += _units(size)

    def batch(self, sizes: Iterable[int]) -> None:
        """One strong `BatchGetItem`, of items of these sizes (0: there was none)."""
        self.calls["BatchGetItem"] += 1
        self.units += sum(map(_units, sizes))


def _units(size: int) -> int:
    return max(1, -(-size // UNIT_BYTES))
