"""The graph that `needs` draws: cycles in it, and what is upstream of what. Linear in steps and needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Needs = Mapping[str, Sequence[str]]
"""For each step the steps it needs; every name that is needed is a key, none needs itself."""

MAX_CYCLES = 20
"""So many disjoint cycles are looked for; a document with more has been told enough."""


def dependents(needs: Needs) -> dict[str, tuple[str, ...]]:
    """For each step the steps that need it, in the order of the keys."""
    found: dict[str, list[str]] = {name: [] for name in needs}
    for name, needed in needs.items():
        for other in needed:
            found[other].append(name)
    return {name: tuple(others) for name, others in found.items()}


def cycles(needs: Needs) -> list[tuple[str, ...]]:
    """Disjoint cycles, at most `MAX_CYCLES`: the steps on each, where each needs the next and the last the first."""
    readers = dependents(needs)
    open_needs = {name: len(needed) for name, needed in needs.items()}
    ready = [name for name, count in open_needs.items() if count == 0]
    left = dict.fromkeys(needs)
    found: list[tuple[str, ...]] = []
    while True:
        while ready:
            name = ready.pop()
            if name not in left:
                continue
            del left[name]
            for reader in readers[name]:
                open_needs[reader] -= 1
                if open_needs[reader] == 0:
                    ready.append(reader)
        if not left or len(found) == MAX_CYCLES:
            return found
        cycle = _walk(needs, left)
        found.append(cycle)
        # As if the cycle were settled: what only hangs on it is in no cycle of its own.
        ready.extend(cycle)


def _walk(needs: Needs, left: Mapping[str, None]) -> tuple[str, ...]:
    """A cycle among steps that each have an open need among themselves: going from need to need must come back."""
    slot: dict[str, int] = {}
    name = next(iter(left))
    while name not in slot:
        slot[name] = len(slot)
        name = next(other for other in needs[name] if other in left)
    return tuple(list(slot)[slot[name] :])


class Upstream:
    """Answers whether one step is upstream of another; built once for an acyclic graph."""

    def __init__(self, needs: Needs) -> None:
        # One bit per step: 10,000 steps take 12 MB here, and a hundred times that as sets of names.
        self._bit = {name: 1 << slot for slot, name in enumerate(needs)}
        self._above: dict[str, int] = {}
        readers = dependents(needs)
        open_needs = {name: len(needed) for name, needed in needs.items()}
        ready = [name for name, count in open_needs.items() if count == 0]
        while ready:
            name = ready.pop()
            above = 0
            for other in needs[name]:
                above |= self._above[other] | self._bit[other]
            self._above[name] = above
            for reader in readers[name]:
                open_needs[reader] -= 1
                if open_needs[reader] == 0:
                    ready.append(reader)

    def holds(self, upper: str, lower: str) -> bool:
        """Whether `lower` needs `upper`, directly or through others."""
        return bool(self._above[lower] & self._bit[upper])
