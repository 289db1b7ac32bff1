"""The workflows whose calls and costs are counted, and what the same work is to the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.workflows import DIAMOND, review

ITEMS = 1_000
HISTORY_EVENTS = 25_000
"""What one execution of Step Functions Standard may have (its quota)."""
EVENTS_A_TASK = 5
"""Entered, scheduled, started, succeeded, exited."""
EXPRESS_SECONDS = 300.0
"""The longest Express execution (its quota)."""
STATE_SECONDS = 0.1
"""What a Lambda task in a state machine is taken to last at least: it is called across services."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A workflow, and its `tasks` (functions called), `states` (transitions of a state machine) and `depth`.

    `operations` are those of a durable function, at least and at most: one for the execution and one for each step;
    at most also one for each parallel block and each of its branches.
    """

    name: str
    document: Mapping[str, Any]
    tasks: int
    states: int
    depth: int
    operations: tuple[int, int]
    given: Any = None

    @property
    def standard(self) -> bool:
        """Whether one execution of Step Functions Standard can do it at all."""
        return EVENTS_A_TASK * self.states <= HISTORY_EVENTS

    @property
    def express_seconds(self) -> float:
        """How long an Express execution would take at least."""
        return self.depth * STATE_SECONDS


TINY = Shape(
    name="tiny",
    document={"name": "load-tiny", "steps": {"only": {"task": "core.echo"}}, "output": "${steps.only.output}"},
    tasks=1,
    states=1,
    depth=1,
    operations=(2, 2),
)
# A Parallel is a state of its own; so are its branches' states.
FOUR = Shape(name="diamond", document=DIAMOND, tasks=4, states=5, depth=3, operations=(5, 8))
REVIEW = Shape(name="review", document=review(0), tasks=5, states=6, depth=3, operations=(6, 10))
WIDE = Shape(
    name="map",
    document={
        "name": "load-map",
        "steps": {"all": {"map": {"over": "${input.items}", "task": "core.echo", "input": {"n": "${item}"}}}},
        "output": "${length(steps.all.output)}",
    },
    tasks=ITEMS,
    states=ITEMS + 1,
    depth=2,
    operations=(ITEMS + 1, 2 * ITEMS + 2),
    given={"items": list(range(ITEMS))},
)


def chain(length: int) -> Shape:
    """So many steps one after the other. Raises ValueError for none."""
    if length < 1:
        raise ValueError(f"a chain has at least one step, not {length}")
    steps: dict[str, Any] = {"s00000": {"task": "core.echo"}}
    for number in range(1, length):
        steps[f"s{number:05d}"] = {"task": "core.echo", "needs": [f"s{number - 1:05d}"]}
    return Shape(
        name=f"chain of {length:,}",
        document={"name": f"load-chain-{length}", "steps": steps},
        tasks=length,
        states=length,
        depth=length,
        operations=(length + 1, length + 1),
    )
