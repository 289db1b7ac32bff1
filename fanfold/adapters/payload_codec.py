"""Payloads, maps and forks' origins as the lists that records and messages hold them as."""

from __future__ import annotations

from typing import TypeVar

from fanfold.adapters.packing import from_ms, to_ms
from fanfold.engine.language.maps import ItemError, MapState, Via
from fanfold.engine.payload import BlobRef, Json, Value
from fanfold.engine.record.run import ForkOrigin

T = TypeVar("T", str, int, list[Json], dict[str, Json])


def of_kind(value: Json, kind: type[T]) -> T:
    """The value, which is of exactly this kind. Raises TypeError.

    A damaged record shows when it is read, and so costs itself alone, and not when others' records are listed with it.
    """
    if type(value) is not kind:
        raise TypeError(f"a {type(value).__name__} stands where a {kind.__name__} must be")
    return value


def value_to_list(value: Value) -> Json:
    """A payload so that no user's value polls like a reference: None, `[json]` or `[key, bytes, sha256]`."""
    if value is None:
        return None
    if isinstance(value, BlobRef):
        return [value.key, value.bytes, value.sha256]
    return [value]


def value_from_list(packed: Json) -> Value:
    """What `value_to_list` packed."""
    if packed is None:
        return None
    if len(packed) == 3:
        return BlobRef(key=of_kind(packed[0], str), bytes=of_kind(packed[1], int), sha256=of_kind(packed[2], str))
    (value,) = of_kind(packed, list)
    return value


def origin_to_list(origin: ForkOrigin) -> list[Json]:
    """What a fork goes on from: run, step, checkpoints as `value_to_list` has them, milliseconds."""
    return [origin.run_id, origin.from_step, value_to_list(origin.checkpoints), to_ms(origin.since)]


def origin_from_list(packed: list[Json]) -> ForkOrigin:
    """What `origin_to_list` packed."""
    run_id, from_step, (key, size, sha256), since = packed
    checkpoints = BlobRef(key=key, bytes=size, sha256=sha256)
    return ForkOrigin(run_id=run_id, from_step=from_step, checkpoints=checkpoints, since=from_ms(since))


def map_to_list(state: MapState) -> list[Json]:
    """What a record holds of a map, as a list."""
    return [
        state.via.value,
        state.items,
        state.batch_size,
        state.batches_at_once,
        value_to_list(state.plan),
        state.polls,
        state.failed,
        [item_error_to_list(error) for error in state.errors],
        # Only where it says something: a record is not longer for what hardly ever happens.
        *([state.again] if state.again else []),
    ]


def map_from_list(packed: list[Json]) -> MapState:
    """What `map_to_list` packed."""
    via, items, batch_size, batches_at_once, plan, polls, failed, errors, *rest = packed
    (again,) = rest or (0,)
    return MapState(
        via=Via(via),
        items=items,
        batch_size=batch_size,
        batches_at_once=batches_at_once,
        plan=value_from_list(plan),
        polls=polls,
        failed=failed,
        errors=tuple(item_error_from_list(error) for error in errors),
        again=again,
    )


def item_error_to_list(error: ItemError) -> list[Json]:
    """Why an item of a map failed: index, type, message."""
    return [error.index, error.type, error.message]


def item_error_from_list(packed: list[Json]) -> ItemError:
    """What `item_error_to_list` packed."""
    return ItemError(index=packed[0], type=packed[1], message=packed[2])
