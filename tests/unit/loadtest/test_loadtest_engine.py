"""The engine alone carries runs to their end, and the peers' figures are what their rows say."""

from __future__ import annotations

import pytest

from lab.peers.stepfunctions import definition
from lab.peers.swarmkit import completed
from loadtest.engine import worked
from loadtest.scenarios.peer_swarmkit import steady_rate
from loadtest.shapes import FOUR, chain


@pytest.mark.parametrize("document", [FOUR.document, chain(3).document], ids=["diamond", "chain"])
def test_the_engine_alone_carries_every_run_to_success(document: dict[str, object]) -> None:
    found = worked(document, 5)
    assert found.runs == 5
    assert found.processor_seconds > 0


def test_the_engine_alone_says_when_runs_fail() -> None:
    failing = {"name": "failing", "steps": {"only": {"task": "core.fold", "input": "no object"}}}
    with pytest.raises(RuntimeError, match="of 2 runs ended"):
        worked(failing, 2)


def a_job(worker: str, started: float, completed: float) -> dict[str, str]:
    """A job of a peer, by seconds of one minute."""
    times = {"started_at": f"2026-11-30T12:00:{started:06.3f}", "completed_at": f"2026-11-30T12:00:{completed:06.3f}"}
    return {"worker_id": worker, "status": "completed", **times}


def test_a_peer_is_timed_from_when_all_its_workers_had_begun() -> None:
    late = [a_job("b", 5.0 + n, 6.0 + n) for n in range(4)]
    early = [a_job("a", n, n + 1.0) for n in range(9)]
    # Four of b, and those of a that ended after b had begun: 6, 7, 8, 9.
    assert steady_rate([*early, *late]) == pytest.approx(8 / 4)
    assert completed(early) == 9


def test_the_state_machine_of_a_diamond_has_the_states_that_its_price_counts() -> None:
    machine = definition("arn")
    branches = machine["States"]["both"]["Branches"]
    assert len(machine["States"]) + sum(len(branch["States"]) for branch in branches) == FOUR.states
