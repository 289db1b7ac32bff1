"""Hangar's day: six engineers, ten sessions of two turns of 8 s, dashboards open, over 20,000 old runs.

Nobody's answer may depend on how much history there is, or on what the others do.
"""

from __future__ import annotations

from typing import Annotated

from loadtest.counting import all_there, drained
from loadtest.measure import Quantiles, quantiles
from loadtest.sampling import sampled
from loadtest.scenario import Found, Session
from loadtest.swarm import elapsed_seconds, failures
from loadtest.systems_under_test import Needs
from loadtest.verdict import Check, at_most, equal, shown
from loadtest.warmup import warm
from loadtest.workflows import counted_call

QUICK = {"turn_seconds": 2.0, "old": 1_000}

HANGAR_STATUS = (0.042, 0.305)
HANGAR_LIST = (0.087, 0.553)
HANGAR_TURN = (8.6, 10.8)
"""Its published p50 and p95 in seconds; of listings the upper end of what it gives."""
HANGAR_TURN_SECONDS = 8.0
HANGAR_WALL_SECONDS = 38.0


def team(
    session: Session,
    *,
    engineers: Annotated[int, "People, each with a token and a dashboard."] = 6,
    sessions: Annotated[int, "Sessions at once, shared out among them."] = 10,
    turns: Annotated[int, "Turns of a session, one after the other."] = 2,
    turn_seconds: Annotated[float, "How long a turn's model call takes."] = HANGAR_TURN_SECONDS,
    poll_seconds: Annotated[float, "A session looks at its run so often."] = 0.5,
    list_seconds: Annotated[float, "A dashboard asks for two lists and the queues so often."] = 2.0,
    old: Annotated[int, "Ended runs that are there already (a multiple of ten)."] = 20_000,
) -> Found:
    """Sessions poll by the clock, as an MCP client does; rows and executions are counted afterwards."""
    needs = Needs(workers=1, past=old)
    with session.target(needs) as target, target.client() as client:
        workflow = counted_call(counted=target.ledger is not None)
        client.apply(workflow)
        warm(target, client, workflow["name"], 5, {"ms": 50}, callers=engineers + sessions)
        facts = {
            "workflow": workflow["name"],
            "tag": session.tag,
            "tokens": [target.token_of(f"engineer-{number + 1}") for number in range(engineers)],
            "sessions": sessions,
            "turns": turns,
            "ms": turn_seconds * 1000,
            "poll_seconds": poll_seconds,
            "list_seconds": list_seconds,
        }
        users = engineers + sessions
        with sampled(target.processes, every_seconds=1.0) as samples:
            requests = session.swarm("team", target, users=users, seconds=turns * (turn_seconds + 30), **facts)
        rows = drained(client, session.tag, within_seconds=60)
    times = {
        name: [r.seconds for r in requests if r.name in names]
        for name, names in {"status": ("status",), "list": ("list", "list active"), "turn": ("turn",)}.items()
    }
    status, lists, turn = (quantiles(times[name]) for name in ("status", "list", "turn"))
    wait = quantiles(rows.seconds("created_at", "started_at"))
    wall = elapsed_seconds([r for r in requests if r.name == "turn"])
    peak = {name: max(sample.resident_mb for sample in taken) for name, taken in samples.items() if taken}
    whole = turns * sessions
    checks = [
        *all_there("turns: ", rows, whole, ledger=target.ledger),
        equal("failed requests", failures(requests), 0),
        *_against(session, "status read", status, HANGAR_STATUS),
        *_against(session, "lists", lists, HANGAR_LIST),
        shown("queue wait (Hangar: p50 0.01, p95 0.06)", wait),
        shown("peak memory by process in MB (Hangar: 258)", {name: f"{mb:.0f}" for name, mb in peak.items()}),
        shown("status read", status),
        shown("lists", lists),
        shown("turn", turn),
    ]
    if turn_seconds == HANGAR_TURN_SECONDS:
        checks += _against(session, "turn", turn, HANGAR_TURN)
        checks.append(session.timed(at_most("wall clock", wall, HANGAR_WALL_SECONDS, " s")))
    return Found(
        figures={
            "status_seconds": status,
            "list_seconds": lists,
            "turn_seconds": turn,
            "queue_wait_seconds": wait,
            "submit_seconds": quantiles(r.seconds for r in requests if r.name == "submit"),
            "wall_seconds": wall,
            "peak_mb": peak,
            "requests_per_second": len([r for r in requests if r.name != "turn"]) / wall,
        },
        checks=checks,
    )


def _against(session: Session, what: str, measured: Quantiles, published: tuple[float, float]) -> list[Check]:
    p50, p95 = published
    return [
        session.timed(at_most(f"{what}: p50 against Hangar's", measured.p50, p50, " s")),
        session.timed(at_most(f"{what}: p95 against Hangar's", measured.p95, p95, " s")),
    ]
