"""What a scenario claims: figures held against targets, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from loadtest.targets import Goal


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One claim: what was held against which target, what was measured, and whether it holds.

    A check that is only `shown` is a figure for the reader: it can't fail the scenario. `aim` is the row of the table
    of targets that it answers, if any; `n` of how many observations the figure is made, none for an exact count.
    """

    what: str
    target: str
    measured: str
    holds: bool
    shown: bool = False
    aim: Goal | None = None
    n: int | None = None


def holds(checks: Sequence[Check]) -> bool:
    """Whether the scenario passed: every claim holds, and there was one."""
    claims = [check for check in checks if not check.shown]
    return bool(claims) and all(check.holds for check in claims)


def equal(what: str, measured: object, target: object) -> Check:
    """The claim that a count is exactly so."""
    return Check(what=what, target=f"= {target}", measured=str(measured), holds=measured == target)


def at_most(what: str, measured: float, target: float, unit: str = "") -> Check:
    """The claim that a figure is no more than its target."""
    return Check(what=what, target=f"≤ {target:g}{unit}", measured=f"{measured:.4g}{unit}", holds=measured <= target)


def at_least(what: str, measured: float, target: float, unit: str = "") -> Check:
    """The claim that a figure is no less than its target."""
    return Check(what=what, target=f"≥ {target:g}{unit}", measured=f"{measured:.4g}{unit}", holds=measured >= target)


def shown(what: str, measured: object) -> Check:
    """A figure without a target."""
    return Check(what=what, target="", measured=str(measured), holds=True, shown=True)


def toward(aim: Goal, *checks: Check, n: int | None = None) -> list[Check]:
    """The same checks, as an answer to a row of the table of targets, made of `n` observations."""
    return [replace(check, aim=aim, n=n) for check in checks]
