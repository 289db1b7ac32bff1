"""Everything that can be wrong with a document's `map`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fanfold.engine.language.issues import IssueCollector, kind_of
from fanfold.engine.language.templates import Reading, Slot
from fanfold.engine.payload import Json

MAP_KEYS = ("over", "task", "input", "max_concurrency", "tolerate", "via")
TOLERATE_KEYS = ("count", "percent")
VIAS = ("auto", "inline", "stepfunctions")
MAX_CONCURRENCY = 1_000
"""Most items of one map at once: Lambda's default quota of concurrent calls in an account."""

ReadAt = Callable[..., Reading]
"""Reads the expressions of a JSON value at a pointer; with `in_map=True` they may name `item` and `index`."""


def check_map(step: Mapping[str, Json], pointer: str, found: IssueCollector, read: ReadAt) -> list[Slot]:
    """Find what is wrong with a step's map, other than its task; its expressions come back."""
    if "input" in step:
        found.add(f"{pointer}/input", "the input of a map's items stands inside `map`")
    mapped, pointer = step["map"], f"{pointer}/map"
    if not isinstance(mapped, dict):
        found.add(pointer, f"must be an object, not {kind_of(mapped)}")
        return []
    found.keys(mapped, MAP_KEYS, pointer)
    found.one_of(mapped, "via", VIAS, pointer)
    if "max_concurrency" in mapped and not _whole(mapped["max_concurrency"], 1, MAX_CONCURRENCY):
        found.add(f"{pointer}/max_concurrency", f"must be a whole number from 1 to {MAX_CONCURRENCY:,}")
    if "tolerate" in mapped:
        _tolerate(mapped["tolerate"], f"{pointer}/tolerate", found)
    slots: list[Slot] = []
    if "over" not in mapped:
        found.add(pointer, "`over` is missing: the list whose items the map goes over")
    else:
        over = read(mapped["over"], f"{pointer}/over")
        slots.extend(over.slots)
        if not over.problems and not over.single and not isinstance(mapped["over"], list):
            found.add(f"{pointer}/over", 'must be a list, or exactly one expression that gives one: "${…}"')
    if "input" in mapped:
        slots.extend(read(mapped["input"], f"{pointer}/input", in_map=True).slots)
    return slots


def _tolerate(tolerate: Json, pointer: str, found: IssueCollector) -> None:
    if not isinstance(tolerate, dict):
        found.add(pointer, f"must be an object, not {kind_of(tolerate)}")
        return
    found.keys(tolerate, TOLERATE_KEYS, pointer)
    if len(tolerate.keys() & set(TOLERATE_KEYS)) != 1:
        found.add(pointer, "has exactly one of `count` and `percent`")
    if "count" in tolerate and not _whole(tolerate["count"], 0, None):
        found.add(f"{pointer}/count", "must be a whole number from 0")
    percent = tolerate.get("percent", 0)
    if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:
        found.add(f"{pointer}/percent", "must be a number from 0 to 100")


def _whole(value: Json, least: int, most: int | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least and (most is None or value <= most)
