"""How long a worker's loop stands still for decisions made to be long: `python -m tests.bench.decisions`.

Plays what hostile documents ask for, decision by decision as a worker does (its payloads are loaded), and prints for
each: how many decisions it took, the longest and the median in milliseconds of processor time, and by how much the
process grew. The limits that hold them down are counts (`fanfold/engine/language/budget.py`).
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from typing import Any

from fanfold.engine.payload import Json
from fanfold.engine.rules.decide import decide
from fanfold.engine.rules.events import Claimed, Event, RecordReloaded
from tests.support.game import Game, a_flow

TEXT = "x" * 4_000_000
NUMBERS = list(range(80_000))
PEOPLE = [{"id": number, "name": f"n{number}", "ok": number % 3 == 0} for number in range(50_000)]


def steps(count: int, **step: Json) -> dict[str, Any]:
    """So many steps, all ready at once."""
    return {f"s{number}": step for number in range(count)}


REVERSED = ["${length(reverse(input))}"]
CASES: dict[str, tuple[dict[str, Any], Json]] = {
    "reverse() of 4 MB, 400 times in one step": (steps(1, input=REVERSED * 400, on_failure="continue"), TEXT),
    "reverse() of 4 MB, 2,500 times in 100 steps": (steps(100, input=REVERSED * 25, on_failure="continue"), TEXT),
    "reverse() of 4 MB once in each of 100 steps": (steps(100, input=REVERSED), TEXT),
    "sort_by over 80,000 numbers in 20 `when`s": (steps(20, when="${length(sort_by(input, &@)) > `0`}"), NUMBERS),
    "a filter over 50,000 objects in 20 `when`s": (steps(20, when="${length(input[?ok && id > `5`]) > `0`}"), PEOPLE),
    "300 steps that each put 4 MB into a text": (steps(300, input={"x": "it is ${input}"}), TEXT),
    "300 steps that each take 4 MB as they are": (steps(300, input={"x": "${input}"}), TEXT),
    "10,000 steps of no expression": (steps(10_000), None),
    "50,000 objects put into a text in 20 steps": (
        steps(20, input={"x": "it is ${input}"}, on_failure="continue"),
        PEOPLE,
    ),
}


def played(flow: dict[str, Any], given: Json) -> tuple[list[float], bool]:
    """Seconds of processor time of each decision until there is nothing more to do."""
    game = Game(a_flow(flow), input=given)
    event: Event = Claimed(owner="c" * 16, worker="w")
    seconds: list[float] = []
    run, more = game.run, True
    while more:
        begun = time.thread_time()
        decision = decide(run, game.workflow, [event], game.now, limits=game.limits)
        seconds.append(time.thread_time() - begun)
        run, event, more = decision.run, RecordReloaded(), decision.more
    return seconds, run.terminal


def main() -> None:
    """Play all, tell of each."""
    for name, (flow, given) in CASES.items():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds, _ = played(flow, given)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        longest, median = 1_000 * max(seconds), 1_000 * statistics.median(seconds)
        figures = f"longest {longest:6.1f} ms, median {median:6.1f} ms, +{grown:.0f} MB"
        sys.stdout.write(f"{name:48} {len(seconds):4} decisions, {figures}\n")


if __name__ == "__main__":
    main()
