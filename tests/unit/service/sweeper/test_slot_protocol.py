"""Slot repair against every order of events: no live place is ever subtracted, every leak heals (R6).

A small model of the protocol: submits of an hour that closes, one submit of a later hour, their
claims and returns, and a sweeper that counts row by row. Each step may happen in any order with
the others, each call may be lost before or after it took effect, every process may die. The
windows are what the code promises: a place is returned soon after its commit or not at all, and
what happens to a run of a closed hour's absent row involves no place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pytest

from fanfold.engine.admission.leaked_slots import Finding, leaked
from fanfold.engine.record.run import Slot

BOUND = 3
AGAIN = timedelta(minutes=2)
T1 = datetime(2026, 3, 1, 18, 0, tzinfo=UTC)
OLD, NEW = 0, 1


class Phase(StrEnum):
    """Where one submit and its run stand."""

    IDLE = "idle"
    RESERVED = "reserved"  # the API holds a place
    SENT = "sent"  # the envelope is out, the API is about to create the row
    ORPHAN = "orphan"  # the envelope is out, and nobody will create a row but a claim
    QUEUED = "queued"  # the row is there
    RETURNING = "returning"  # the row left `queued` just now, its place is on its way back
    LATE = "late"  # the same, begun before the sweeper read the counter
    OVER = "over"


class Era(StrEnum):
    """How long ago the old hour ended."""

    OPEN = "open"
    CLOSED = "closed"  # its envelopes grow old
    SWEPT = "swept"  # long enough ago for repair


class Stage(StrEnum):
    """What the sweeper does next."""

    COUNT = "count"  # the next row, the first time
    READ = "read"
    WAIT = "wait"
    RECOUNT = "recount"
    REREAD = "reread"
    WRITE = "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything there is. `taken` counts places by hour; `at` is how far the sweeper's count has come."""

    old: tuple[Phase, ...] = (Phase.IDLE, Phase.IDLE, Phase.IDLE)
    new: Phase = Phase.IDLE
    taken: tuple[int, int] = (0, 0)
    era: Era = Era.OPEN
    stage: Stage = Stage.COUNT
    at: int = 0
    counted: int = 0
    first: tuple[int, int] | None = None
    standing: int = 0
    surplus: int = 0

    def queued(self, hour: int) -> int:
        """Queued rows of an hour."""
        return sum(phase is Phase.QUEUED for phase in (self.old if hour == OLD else (self.new,)))

    def count(self, hour: int, by: int) -> tuple[int, int]:
        """The counters with one of them changed."""
        return (self.taken[0] + by, self.taken[1]) if hour == OLD else (self.taken[0], self.taken[1] + by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The protocol's rules, each of which a test leaves out once."""

    waits: bool = True
    conditional: bool = True
    same_counter: bool = True
    no_late_row: bool = True
    no_late_return: bool = True
    old_envelopes_have_no_slot: bool = True


def submits(world: World, rules: Rules) -> Iterator[World]:
    """What the submits of the old hour, their API processes and workers may do next."""
    for number, phase in enumerate(world.old):

        def become(phase: Phase, by: int = 0, number: int = number) -> World:
            old = (*world.old[:number], phase, *world.old[number + 1 :])
            return replace(world, old=old, taken=world.count(OLD, by))

        match phase:
            case Phase.IDLE if world.era is Era.OPEN and sum(world.taken) < BOUND:
                yield become(Phase.RESERVED, 1)
                yield become(Phase.OVER, 1)  # reserved, and never answered
            case Phase.RESERVED:
                yield become(Phase.OVER)  # died, or its envelope was lost without an answer
                yield become(Phase.SENT)
                yield become(Phase.ORPHAN)
                if world.era is not Era.SWEPT or not rules.no_late_return:
                    yield from returned(world, OLD, lambda by: become(Phase.OVER, by))  # definitely refused
            case Phase.SENT:
                yield become(Phase.ORPHAN)
                if world.era is not Era.SWEPT or not rules.no_late_row:
                    yield become(Phase.QUEUED)
                yield from claimed_without_row(world, rules, become)
            case Phase.ORPHAN:
                yield from claimed_without_row(world, rules, become)
            case Phase.QUEUED:
                yield become(Phase.RETURNING)
            case Phase.RETURNING | Phase.LATE:
                yield become(Phase.OVER)  # its worker died, or the return was lost
                yield from returned(world, OLD, lambda by: become(Phase.OVER, by))
            case _:
                pass


def claimed_without_row(world: World, rules: Rules, become: Callable[..., World]) -> Iterator[World]:
    """A claim creates the row: of a young envelope with its place, of an old one without."""
    if world.era is not Era.SWEPT or not rules.old_envelopes_have_no_slot:
        yield become(Phase.RETURNING)
    if world.era is not Era.OPEN:
        yield become(Phase.OVER)


def returned(world: World, hour: int, become: Callable[[int], World]) -> Iterator[World]:
    """A return that arrives: never below zero."""
    yield become(-1 if world.taken[hour] > 0 else 0)


def newcomer(world: World) -> Iterator[World]:
    """What the later submit may do next: it is what a place too many would let in."""
    match world.new:
        case Phase.IDLE if sum(world.taken) < BOUND:
            yield replace(world, new=Phase.QUEUED, taken=world.count(NEW, 1))
        case Phase.QUEUED:
            yield replace(world, new=Phase.RETURNING)
        case Phase.RETURNING:
            yield replace(world, new=Phase.OVER)
            yield replace(world, new=Phase.OVER, taken=world.count(NEW, -1))
        case _:
            pass


def time(world: World) -> Iterator[World]:
    """The hour closes, and at last is old enough."""
    if world.era is Era.OPEN:
        yield replace(world, era=Era.CLOSED)
    elif world.era is Era.CLOSED:
        yield replace(world, era=Era.SWEPT)


def sweeper(world: World, rules: Rules) -> Iterator[World]:
    """The sweeper's next step."""
    if world.era is not Era.SWEPT:
        return
    match world.stage:
        case Stage.COUNT:
            yield look_at_row(world, Stage.READ)
        case Stage.READ:
            standing = world.taken[OLD]
            surplus = standing - world.counted
            if surplus <= 0:
                yield fresh(world)
                return
            late = tuple(Phase.LATE if phase is Phase.RETURNING else phase for phase in world.old)
            yield replace(world, old=late, stage=Stage.WAIT, first=(standing, surplus), at=0, counted=0)
        case Stage.WAIT:
            # The time between is longer than a return may take.
            if not rules.waits or Phase.LATE not in world.old:
                yield replace(world, stage=Stage.RECOUNT)
        case Stage.RECOUNT:
            yield look_at_row(world, Stage.REREAD)
        case Stage.REREAD:
            yield judged(world, rules)
        case Stage.WRITE:
            standing = world.taken[OLD]
            if standing == world.standing or not rules.conditional:
                # It may be asked for again: by another sweeper, or because the answer was lost.
                yield replace(world, taken=world.count(OLD, -min(world.surplus, standing)))
            yield fresh(world)


def look_at_row(world: World, after: Stage) -> World:
    """The count goes on by one row."""
    counted = world.counted + (world.old[world.at] is Phase.QUEUED)
    done = world.at + 1 == len(world.old)
    return replace(world, counted=counted, at=0 if done else world.at + 1, stage=after if done else world.stage)


def judged(world: World, rules: Rules) -> World:
    """The engine's own verdict on the two findings."""
    assert world.first is not None
    before, now = world.first, (world.taken[OLD], world.taken[OLD] - world.counted)
    if not rules.same_counter:
        before = (now[0], before[1])
    first, second = (
        Finding(class_name="model", slot=Slot(shard=0, hour=1), standing=standing, surplus=surplus, at=at)
        for (standing, surplus), at in ((before, T1), (now, T1 + AGAIN))
    )
    certain = leaked(first, second, again=AGAIN)
    return replace(fresh(world), stage=Stage.WRITE, standing=now[0], surplus=certain) if certain else fresh(world)


def fresh(world: World) -> World:
    """The sweeper begins anew."""
    return replace(world, stage=Stage.COUNT, at=0, counted=0, first=None, standing=0, surplus=0)


def reachable(rules: Rules) -> Iterator[World]:
    """Every world that can come to be, each once."""
    seen = {World()}
    ahead = [World()]
    while ahead:
        world = ahead.pop()
        yield world
        for part in (submits(world, rules), newcomer(world), time(world), sweeper(world, rules)):
            for following in part:
                if following not in seen:
                    seen.add(following)
                    ahead.append(following)


def broken(world: World) -> str | None:
    """What of the promise does not hold in a world."""
    queued = world.queued(OLD) + world.queued(NEW)
    if queued > BOUND:
        return f"{queued} rows are queued, the bound is {BOUND}"
    for hour in (OLD, NEW):
        if world.taken[hour] < world.queued(hour):
            return f"the counter has {world.taken[hour]} places for {world.queued(hour)} queued rows"
    return None


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return list(reachable(Rules()))


def test_no_order_of_events_subtracts_a_live_slot(worlds: list[World]) -> None:
    assert len(worlds) > 50_000
    for world in worlds:
        assert broken(world) is None, world


def test_whatever_leaked_is_healed_once_things_are_quiet(worlds: list[World]) -> None:
    quiet = {Phase.IDLE, Phase.QUEUED, Phase.OVER}
    for world in worlds:
        if world.era is not Era.SWEPT or world != fresh(world) or not quiet.issuperset(world.old):
            continue
        swept = world
        for _ in range(2 * len(world.old) + 4):
            step = next(sweeper(swept, Rules()))
            swept = fresh(step) if swept.stage is Stage.WRITE else step
        assert swept.taken[OLD] == world.queued(OLD), world


@pytest.mark.parametrize(
    "rule",
    [
        "waits",
        "conditional",
        "same_counter",
        "no_late_row",
        "no_late_return",
        "old_envelopes_have_no_slot",
    ],
)
def test_without_any_one_of_its_rules_the_repair_would_take_a_live_slot(rule: str) -> None:
    rules = Rules(**{rule: False})
    assert any(broken(world) is not None for world in reachable(rules)), f"{rule} is not needed"
