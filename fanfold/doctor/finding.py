"""What a check is, and what it finds: a sentence each for what is so, why it matters, and how to fix it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fanfold.doctor.deployment import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What the doctor can do itself: safe while runs are under way, and of no effect when done twice.

    `does` says it in the infinitive; `apply` does it and raises what AWS answers instead.
    """

    does: str
    apply: Callable[[], object] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it should be. `remedy` is there where the doctor may fix it by itself."""

    what: str
    why: str
    fix: str
    remedy: Remedy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing to look at. `find` yields findings, none when all is well, and lets AWS's errors fly."""

    name: str
    looks_at: str
    find: Callable[[Deployment], Iterable[Finding]] = field(repr=False, compare=False)
