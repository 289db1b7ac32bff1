"""The lanes of a class: which one a run takes, which a token may use, in what order a worker looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fanfold.engine.errors import InvalidDocument, LaneDenied, ValidationIssue

USUAL_LANE: Final = "normal"
"""The lane of a run that names none, in a class that has it; elsewhere that of `USUAL_PRIORITY`."""
USUAL_PRIORITY: Final = 5
MAX_PRIORITY: Final = 9
"""Priorities are 0 to 9, 9 the most urgent, so that a caller need not know how many lanes a class has."""
MAX_LANES: Final = 5
"""Of a class: with more, no better lane could have most of ten looks."""
TURNS: Final = 10
"""Looks at a class's lanes until their order repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRequest:
    """Where a run is to wait: a `lane`, or a `priority`, or neither: then `usual`, or the best lane it may use."""

    lane: str | None = None
    priority: int | None = None
    usual: str = USUAL_LANE


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimit:
    """The best lane and the highest priority a caller may use; None: any.

    In a class without the lane `max_lane` the caller may use the last lane alone.
    """

    max_lane: str | None = None
    max_priority: int | None = None

    def first(self, lanes: Sequence[str]) -> int:
        """The position of the best of these lanes (best first) that it allows."""
        by_lane = 0 if self.max_lane is None else len(lanes) - 1
        if self.max_lane in lanes:
            by_lane = lanes.index(self.max_lane)
        by_priority = 0 if self.max_priority is None else position(lanes, self.max_priority)
        return max(by_lane, by_priority)


UNBOUND: Final = LaneLimit()
USUAL: Final = LaneRequest()


def position(lanes: Sequence[str], priority: int) -> int:
    """The position of the lane that a priority means: with three lanes 9–7 are the first, 6–3 the second."""
    return (MAX_PRIORITY + 1 - priority) * len(lanes) // (MAX_PRIORITY + 2)


def lane_of(class_name: str, lanes: Sequence[str], urgency: LaneRequest, bound: LaneLimit = UNBOUND) -> str:
    """The lane a run takes among its class's `lanes`, best first.

    Raises `InvalidDocument` for a lane there is none of, `LaneDenied` for one that the bound forbids.
    """
    first = bound.first(lanes)
    if urgency.priority is not None:
        chosen = position(lanes, urgency.priority)
        if bound.max_priority is not None and urgency.priority > bound.max_priority:
            raise LaneDenied(f"the token may use priorities up to {bound.max_priority}", pointer="/priority")
    elif urgency.lane is None:
        usual = lanes.index(urgency.usual) if urgency.usual in lanes else position(lanes, USUAL_PRIORITY)
        chosen = max(first, usual)
    elif urgency.lane in lanes:
        chosen = lanes.index(urgency.lane)
    else:
        there = ", ".join(lanes)
        detail = f"class {class_name!r} has no lane {urgency.lane[:64]!r}; there are: {there}"
        raise InvalidDocument((ValidationIssue(pointer="/lane", detail=detail),))
    if chosen < first:
        allowed = ", ".join(lanes[first:])
        pointer = "/lane" if urgency.priority is None else "/priority"
        raise LaneDenied(f"of class {class_name!r} the token may use the lanes {allowed}", pointer=pointer)
    return lanes[chosen]


def order(lanes: int, turn: int) -> Sequence[int]:
    """The positions of so many lanes in the order in which look number `turn` (from 0) goes through them.

    Best first, but of ten looks one begins at each other lane, so that none of them starves.
    """
    best_first = list(range(lanes))
    favoured = turn % TURNS - (TURNS - lanes)
    if favoured <= 0:
        return best_first
    return [favoured, *(lane for lane in best_first if lane != favoured)]


def shares(total: int, lanes: int, *, least: int) -> Sequence[int]:
    """A number split over so many lanes, best first: the best gets the most, each at least `least`.

    Three lanes have shares of about 3, 2 and 1. Raises ValueError where `total` is too small for that.
    """
    parts: list[int] = []
    left = total
    for weight in range(1, lanes):  # from the last lane on
        weights = sum(range(weight, lanes + 1))
        parts.append(max(least, left * weight // weights))
        left -= parts[-1]
    parts.append(left)
    if left < least or (lanes > 1 and left <= parts[0]):
        raise ValueError(f"{total} is too little for {lanes} lanes: {least * lanes + (lanes > 1)} is the least")
    return parts[::-1]
