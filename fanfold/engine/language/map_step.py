"""A step that calls one task for each item of a list: `map: {over: …, task: NAME}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fanfold.engine.language.calling import CallingStep, call_of
from fanfold.engine.language.issues import IssueCollector, kind_of
from fanfold.engine.language.maps import Via
from fanfold.engine.language.step import StepKind, fields_of, template_of
from fanfold.engine.language.templates import Slot, Template
from fanfold.engine.payload import Json

if TYPE_CHECKING:
    from fanfold.engine.language.step_checks import StepChecks

DEFAULT_CONCURRENCY = 40
"""Items of a map worked on at once when its step does not say."""
MAX_CONCURRENCY = 1_000
"""Most items of one map at once: Lambda's default quota of concurrent calls in an account."""
DEFAULT_ITEM_SECONDS = 240.0
"""How long an attempt at an item may take when the step does not say: it fits into a batch of an Express workflow."""
MAP_KEYS = ("over", "task", "input", "max_concurrency", "tolerate", "via")
TOLERATE_KEYS = ("count", "percent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How many items may fail without the map failing: a number, or a part of all in percent."""

    count: int = 0
    percent: float = 0.0

    def bears(self, failed: int, items: int) -> bool:
        """Whether so many failures of so many items are within the tolerance."""
        return failed <= self.count or failed * 100 <= self.percent * items


@dataclass(frozen=True, slots=True, kw_only=True)
class MapStep(CallingStep):
    """Calls a task for each item of a list; `input`, `timeout_seconds` and `retry` are those of one item."""

    over: Template
    max_concurrency: int = DEFAULT_CONCURRENCY
    tolerate: Tolerance = Tolerance()
    via: Via = Via.AUTO

    @property
    def own_templates(self) -> tuple[Template, ...]:
        """The items' input, and the list."""
        return (self.input, self.over)


def _check_task(step: Mapping[str, Json], pointer: str, checks: StepChecks) -> None:
    mapped = step["map"]
    if not isinstance(mapped, dict):
        return
    if "task" in mapped:
        checks.task(mapped["task"], f"{pointer}/map/task")
    else:
        checks.add(f"{pointer}/map", "`task` is missing: what is called for each item")


def _check(step: Mapping[str, Json], pointer: str, checks: StepChecks) -> list[Slot]:
    """Find what is wrong with a step's map, other than its task; its expressions come back."""
    if "input" in step:
        checks.add(f"{pointer}/input", "the input of a map's items stands inside `map`")
    mapped, pointer = step["map"], f"{pointer}/map"
    if not isinstance(mapped, dict):
        checks.add(pointer, f"must be an object, not {kind_of(mapped)}")
        return []
    checks.found.keys(mapped, MAP_KEYS, pointer)
    checks.found.one_of(mapped, "via", tuple(Via), pointer)
    if "max_concurrency" in mapped and not _whole(mapped["max_concurrency"], 1, MAX_CONCURRENCY):
        checks.add(f"{pointer}/max_concurrency", f"must be a whole number from 1 to {MAX_CONCURRENCY:,}")
    if "tolerate" in mapped:
        _check_tolerate(mapped["tolerate"], f"{pointer}/tolerate", checks.found)
    slots: list[Slot] = []
    if "over" not in mapped:
        checks.add(pointer, "`over` is missing: the list whose items the map goes over")
    else:
        over = checks.expressions(mapped["over"], f"{pointer}/over")
        slots.extend(over.slots)
        if not over.problems and not over.single and not isinstance(mapped["over"], list):
            checks.add(f"{pointer}/over", 'must be a list, or exactly one expression that gives one: "${…}"')
    if "input" in mapped:
        slots.extend(checks.expressions(mapped["input"], f"{pointer}/input", in_map=True).slots)
    return slots


def _check_tolerate(tolerate: Json, pointer: str, found: IssueCollector) -> None:
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


def _parse(name: str, source: Mapping[str, Json], max_step_seconds: float) -> MapStep:
    mapped = source["map"]
    tolerate = mapped.get("tolerate", {})
    call = call_of(
        source,
        task=mapped["task"],
        # The item itself where the map does not say.
        input=mapped.get("input", "${item}"),
        longest_seconds=min(max_step_seconds, DEFAULT_ITEM_SECONDS),
    )
    return MapStep(
        **fields_of(name, source),
        **call,
        over=template_of(mapped["over"]),
        max_concurrency=mapped.get("max_concurrency", DEFAULT_CONCURRENCY),
        tolerate=Tolerance(count=tolerate.get("count", 0), percent=float(tolerate.get("percent", 0.0))),
        via=Via(mapped.get("via", Via.AUTO)),
    )


MAP = StepKind(key="map", check=_check, check_task=_check_task, parse=_parse, has_input=False)
