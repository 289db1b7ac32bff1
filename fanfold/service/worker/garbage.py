"""How often a worker's process looks for garbage that reference counts don't find."""

from __future__ import annotations

import gc

GENERATIONS = (10_000, 10, 10)
"""Allocations before the youngest objects are looked through, and how many such looks make one at the older ones.

Python's own 700 is for small programs: 32 runs under way have so many objects that a tenth of a worker's time went into
looking at what was still in use.
"""


def look_seldom() -> None:
    """What is loaded by now stays for good and is looked at no more; what comes is looked at seldom."""
    gc.freeze()
    gc.set_threshold(*GENERATIONS)
