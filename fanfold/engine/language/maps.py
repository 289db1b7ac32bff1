"""A map over many items: how it is split into batches, what is recorded of them, and what their results add up to.

A map's *plan* is the items it goes over and what else their inputs are made of, pinned when the step
starts; its *batches* are ranges of items that one worker works on and records together.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fanfold.engine.language.budget import Budget
from fanfold.engine.language.templates import Template
from fanfold.engine.payload import BlobRef, Json, Value, dump

BATCHES_AT_ONCE = 4
"""A distributed map is cut so that about so many batches, each of several items, make up its `max_concurrency`."""
MAX_ERRORS = 20
"""So many failed items are named in the run's record; the map's records have them all."""
MAX_EXECUTION_NAME = 80
"""Step Functions' longest execution name."""


ANSWERS = "answers"
"""In the output of an execution of a map: what each of its batches answered, a word, or one for each of its items."""
THROTTLED = "throttled"
"""The word for a batch or an item that was never begun."""
DEAD = "dead"
"""The word for an item of which its function died; there is no record of it."""


class Via(StrEnum):
    """Where the items of a map are worked on."""

    AUTO = "auto"  # few items in the worker that holds the run, many through Step Functions
    INLINE = "inline"  # in the worker that holds the run
    STEP_FUNCTIONS = "stepfunctions"  # in functions of their own; the run is let go meanwhile


MAX_ITEM_BYTES = 40_000_000
COUNTED_OVER = 10
"""An item's input has at most so many bytes of JSON. They are counted where it has more than so many expressions: each
may pick all that a step reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemError:
    """Why an item failed: its index, a stable `type` for programs, a sentence for people."""

    index: int
    type: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """An item's end: its output, or its error."""

    index: int
    output: Value = None
    error: ItemError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MapState:
    """What a run's record holds of a map, pinned when its step starts (R9).

    `via` is never `auto`. `plan` is dropped when the map has ended; `polls` counts how often it was
    found still running; `failed` is None until it has ended, `errors` are the first of them. `again` counts
    the executions after the first in this try: each is asked for the items that those before could not begin.
    """

    via: Via
    items: int
    batch_size: int
    batches_at_once: int = 1
    plan: Value = None
    polls: int = 0
    failed: int | None = None
    errors: tuple[ItemError, ...] = ()
    again: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The items `[first, end)`."""

    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRecord:
    """What one batch left behind in one try of the run: the results of its items, for the plan with that digest.

    `damage` says why nothing of it can be read; it is of no plan then.
    """

    try_number: int
    first: int
    plan: str
    results: tuple[ItemResult, ...]
    damage: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many items of an open map have ended, `failed` ones among them."""

    done: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """A map's records put together: a result for every item, in item order, and how many of them failed."""

    results: tuple[ItemResult, ...]
    failed: int

    @property
    def errors(self) -> tuple[ItemError, ...]:
        """The first failures, as many as a record holds."""
        return tuple(result.error for result in self.results if result.error is not None)[:MAX_ERRORS]


def plan_of(items: Sequence[Json], scope: Mapping[str, Json]) -> Json:
    """A map's plan: its items, and the scope their inputs are evaluated in besides."""
    return {"items": list(items), "scope": dict(scope)}


def item_input(template: Template, plan: Json, index: int, budget: Budget | None = None) -> Json:
    """What an item's task is given. Raises `ExpressionError`."""
    scope = {**plan["scope"], "item": plan["items"][index], "index": index}
    return template.evaluate(scope, budget, max_bytes=MAX_ITEM_BYTES if template.expressions > COUNTED_OVER else None)


def digest(plan: Value) -> str:
    """A name for a plan's content: results of one plan say nothing of another's items."""
    sha256 = plan.sha256 if isinstance(plan, BlobRef) else hashlib.sha256(dump(plan)).hexdigest()
    return sha256[:16]


def batch_size(max_concurrency: int, items: int, largest: int) -> int:
    """How many items a batch elsewhere has: it works on all of them at once, beside `BATCHES_AT_ONCE` − 1 others."""
    return max(1, min(largest, max_concurrency // BATCHES_AT_ONCE, -(-items // BATCHES_AT_ONCE)))


def split(indexes: Iterable[int], size: int) -> tuple[Batch, ...]:
    """Ascending indexes as batches of neighbours, none longer than `size`."""
    batches: list[Batch] = []
    for index in indexes:
        last = batches[-1] if batches else None
        if last is not None and last.end == index and index - last.first < size:
            batches[-1] = Batch(first=last.first, end=index + 1)
        else:
            batches.append(Batch(first=index, end=index + 1))
    return tuple(batches)


def succeeded(records: Collection[MapRecord], plan: str) -> dict[int, ItemResult]:
    """The items of this plan that succeeded in any try: none of them is worked on again."""
    return {
        result.index: result
        for record in records
        if record.plan == plan
        for result in record.results
        if result.error is None
    }


def known(records: Collection[MapRecord], *, plan: str, try_number: int) -> dict[int, ItemResult]:
    """The items that need no more work in this try: what it recorded, and the successes of the tries before it."""
    found = {
        result.index: result
        for record in records
        if record.plan == plan and record.try_number == try_number
        for result in record.results
    }
    return found | succeeded(records, plan)


def missing(items: int, records: Collection[MapRecord], plan: str) -> Sequence[int]:
    """The indexes of the items that a new try has to work on."""
    done = succeeded(records, plan)
    return [index for index in range(items) if index not in done]


def unended(items: int, records: Collection[MapRecord], *, plan: str, try_number: int) -> Sequence[int]:
    """The indexes of the items that no record of this try, and no success before it, tells of."""
    found = known(records, plan=plan, try_number=try_number)
    return [index for index in range(items) if index not in found]


def fold(items: int, records: Collection[MapRecord], *, plan: str, try_number: int) -> Folded:
    """What a try's records add up to, with the successes of the tries before it.

    An item that no record tells of has failed: its batch's worker died, or the execution ended before it.
    """
    found = known(records, plan=plan, try_number=try_number)
    results = tuple(found.get(index) or _unrecorded(index) for index in range(items))
    return Folded(results=results, failed=sum(result.error is not None for result in results))


def progress(records: Collection[MapRecord], *, plan: str, try_number: int) -> Progress:
    """What a try's records, and the successes before it, say of a map that goes on."""
    ended = known(records, plan=plan, try_number=try_number).values()
    return Progress(done=len(ended), failed=sum(result.error is not None for result in ended))


def _unrecorded(index: int) -> ItemResult:
    message = "its batch left no result: the worker died, or the execution was ended"
    return ItemResult(index=index, error=ItemError(index=index, type="no_result", message=message))


def execution_name(run_id: str, submission: str, step: str, try_number: int, again: int = 0) -> str:
    """The execution of a map step in a try of a run: the same for whoever starts it, and for no other.

    `again` is that of the map's state. A step name too long for it is cut and gets a checksum instead of the rest.
    """
    head, tail = f"{run_id}-", f"-{try_number}{f'.{again}' if again else ''}-{submission}"
    room = MAX_EXECUTION_NAME - len(head) - len(tail)
    if len(step) > room:
        step = f"{step[: room - 9]}-{zlib.crc32(step.encode()):08x}"
    return f"{head}{step}{tail}"


def batches_key(plan: BlobRef, again: int = 0) -> str:
    """Where the list of a plan's batches lies, which the state machine reads; `again` is that of the map's state."""
    return f"{plan.key}.batches{f'.{again}' if again else ''}"


def batches_json(batches: Sequence[Batch]) -> bytes:
    """The list of batches as the state machine reads it."""
    return dump([{"from": batch.first, "to": batch.end} for batch in batches])
