"""The figures that were to be reached, a row each: what is held against which target, and what measures it."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Goal(StrEnum):
    """One row of the table of targets: the figure, its target, and the commands whose results answer it."""

    figure: str
    target: str
    commands: tuple[str, ...]

    WRITES = (
        "writes",
        "DynamoDB writes and reads of a diamond, from the submit to its success (counted; without the places' counter)",
        "≤ 6 writes, 0 reads",
        ("cost",),
    )
    CHAIN = (
        "chain",
        "write units per step of a chain of 10,000 ÷ of a chain of 100",
        "≤ 1.2",
        ("cost",),
    )
    COST = (
        "money",
        "USD per million diamonds, every part counted; against Step Functions Standard and durable functions",
        "≤ 10 busy, ≤ 13 idle; ≥ 10× and ≥ 4× below",
        ("cost",),
    )
    ENGINE = (
        "engine",
        "the engine alone, in memory, codec included: a diamond's processor time ÷ that of packing 20 events",
        "≤ 40",
        ("engine",),
    )
    LATENCY = (
        "latency",
        "an empty diamond on an idle system, one worker process: from its acceptance to its last commit",
        "p95 ≤ 4 reads of a run",
        ("engine",),
    )
    LEVEL = (
        "level",
        "what a dependency level adds, warm",
        "≤ 1 read of a run",
        ("engine",),
    )
    WIDE = (
        "wide",
        "one worker process, 100 runs of a 2 s call at once",
        "≥ 0.9 of the ideal; ≥ 1× SwarmKit all in one, measured in turns",
        ("workers", "peer-swarmkit"),
    )
    SCALING = (
        "scaling",
        "1 → 8 worker processes of one run each, 500 ms a call; simulated to 1,000 workers",
        "≥ 7.5×; efficiency ≥ 0.95",
        ("workers", "scale --target memory"),
    )
    STORM = (
        "storm",
        "10,000 submits at a bound, while the workers are busy",
        "accepted = bound, 0 errors, p99 of a 429 ≤ 3× its idle p99",
        ("storm",),
    )
    HISTORY = (
        "history",
        "a page and a read at 1,000, 20,000 and 1,000,000 old runs",
        "equal calls and units; time ratio ≤ 1.2",
        ("history --target memory",),
    )
    KILLS = (
        "kills",
        "workers killed on both sides of every step's end, 100 runs",
        "100 complete, no finished step executed again",
        ("kills",),
    )
    SOAK = (
        "soak",
        "half an hour at a fixed rate",
        "memory and descriptors flat; places = queued rows in the end",
        ("soak",),
    )

    def __new__(cls, name: str, figure: str, target: str, commands: tuple[str, ...]) -> Self:
        """A member is its name."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.figure, member.target, member.commands = figure, target, commands
        return member

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The scenarios whose results answer it."""
        return tuple(command.split()[0] for command in self.commands)
