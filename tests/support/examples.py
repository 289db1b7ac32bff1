"""How many examples the tests of hostile input try: more of them, and other ones, when `HOSTILE_TIMES` says so."""

from __future__ import annotations

import os
from typing import Any

TIMES = int(os.environ.get("HOSTILE_TIMES", "1"))


def examples(count: int) -> dict[str, Any]:
    """Hypothesis' settings for so many examples, times `HOSTILE_TIMES`; as they come, the same each time."""
    return {"max_examples": count * TIMES, "derandomize": TIMES == 1, "deadline": None}
