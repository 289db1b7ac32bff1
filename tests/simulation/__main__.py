"""Plays many schedules over all processors: `python -m tests.simulation --seeds 2000 --first 1`.

Prints a line of progress, and for each schedule that broke a promise its seed and the shortest
course found to it. Exit status 1 when there was one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.outcome import Failure, Played
from tests.simulation.schedule import play
from tests.simulation.shrink import shrink

CHUNK = 20
MAX_SHOWN = 5
"""Failures beyond these are only listed: they are mostly the same."""


def main() -> int:
    """Play, tell, and say by the exit status whether all promises were kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many schedules")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    failures: list[Failure] = []
    totals: Counter[str] = Counter()
    begun = time.monotonic()
    with ProcessPoolExecutor(asked.jobs) as pool:
        for played in pool.map(_play, chunks):
            for one in played:
                totals.update(schedules=1, runs=one.runs, writes=one.writes, faults=one.faults)
                totals["hours"] += round(one.virtual_seconds)
                if one.failure is not None:
                    failures.append(one.failure)
                    # At once: hours may pass before the end, where it is shrunk.
                    _say(f"\nseed {one.failure.seed}: {one.failure.what}: {one.failure.detail}\n")
            _progress(totals, len(seeds), len(failures), time.monotonic() - begun)
    _say("\n")
    for failure in failures[:MAX_SHOWN]:
        _say(shrink(failure).report() + "\n\n")
    for failure in failures[MAX_SHOWN:]:
        _say(f"seed {failure.seed}: {failure.what}: {failure.detail}\n")
    return 1 if failures else 0


def _play(seeds: Sequence[int]) -> list[Played]:
    return [play(seed) for seed in seeds]


def _progress(totals: Counter[str], of: int, failed: int, seconds: float) -> None:
    done = totals["schedules"]
    line = (
        f"{done}/{of} schedules, {done / seconds:.0f}/s, {failed} failed; {totals['runs']} runs, "
        f"{totals['writes']} writes, {totals['faults']} faults, {totals['hours'] / 3600:.0f} virtual hours"
    )
    _say(f"\r{line}" if sys.stderr.isatty() else f"{line}\n" if done == of or done % 1_000 < CHUNK else "")


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
