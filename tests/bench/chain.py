"""What a step of a long chain costs in time, beside one of a short chain: `python -m tests.bench.chain`.

Chains of `--short` and of `--long` steps are played in turn, in memory on virtual time, each record in the
table's own form; their processor time per step is compared. Prints a line for each round, and the median
of the rounds' ratios last. A machine that is busy with other things only makes the rounds differ more.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import statistics
import sys
import time

from fanfold.engine.ports import RunKey
from fanfold.engine.record.run import Status
from tests.support.virtual import run
from tests.support.world import World
from tests.unit.engine.record.test_sealing import chain

LOOK_SECONDS = 60
"""Virtual seconds between looks at the record: looking is not what is measured."""


def main() -> None:
    """Play, compare, tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.chain", description=__doc__)
    parser.add_argument("--short", type=int, default=100, help="steps of the short chains")
    parser.add_argument("--long", type=int, default=10_000, help="steps of the long chain")
    parser.add_argument("--rounds", type=int, default=3, help="how often both are played, in turn")
    asked = parser.parse_args()
    ratios: list[float] = []
    for number in range(1, asked.rounds + 1):
        short = per_step(asked.short, times=max(1, asked.long // asked.short))
        long = per_step(asked.long)
        ratios.append(long / short)
        _say(f"round {number}: {short * 1e6:.0f} µs and {long * 1e6:.0f} µs a step, ratio {ratios[-1]:.2f}")
    _say(f"a step of {asked.long} costs {statistics.median(ratios):.2f} times one of {asked.short}")


def per_step(length: int, *, times: int = 1) -> float:
    """Processor seconds per step of chains that are played one after the other, without what begins them."""
    with contextlib.redirect_stdout(io.StringIO()):  # what the worker says is not what is measured
        return sum(run(_played(length)) for _ in range(times)) / (length * times)


async def _played(length: int) -> float:
    """Processor seconds from a chain's submission to its end."""
    world = World()
    workflow = await world.register(chain(length))
    gc.collect()
    begun = time.process_time()
    envelope = await world.submit(workflow)
    key = RunKey(tenant=envelope.tenant, run_id=envelope.run_id)
    async with world.worker():
        row = None
        while row is None or not row.terminal:
            await world.services.clock.sleep(LOOK_SECONDS)
            row = await world.runs.get(key, now=world.services.clock.now())
        seconds = time.process_time() - begun
    assert row.status is Status.SUCCEEDED, row.error
    return seconds


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
