"""The steps of a run as one mapping: those in the head, those sealed away, and those that have not begun."""

from __future__ import annotations

from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Loaded, SealedStep, of_loaded
from fanfold.engine.record.run import Run, Sealed, StepState, StepStatus

_PENDING = StepState()


class Steps(dict[str, StepState]):
    """The head's steps; looked up by name, any other step of the workflow is there too.

    One that is sealed shows its status alone (`checkpoint` has the rest), one that has not begun is
    pending. Iteration is over the head's steps only, which keeps its cost independent of how many
    the workflow has.
    """

    def __init__(self, run: Run, workflow: Workflow) -> None:
        super().__init__(run.steps)
        self._workflow = workflow
        self._sealed = run.sealed

    def __missing__(self, name: str) -> StepState:
        if not self._sealed.statuses:
            return _PENDING
        status = self.sealed_status(name)
        return _PENDING if status is None else StepState(status=status)

    def sealed_status(self, name: str) -> StepStatus | None:
        """The status of a sealed step; None for any other."""
        return self._sealed.status(self._workflow.position(name))

    def checkpoint(self, name: str, loaded: Loaded) -> StepState:
        """A step with all that is recorded of it; raises `ValuesMissing` or `PayloadLost` for its segment."""
        if name in self or self.sealed_status(name) is None:
            return self[name]
        state: StepState = of_loaded(SealedStep(step=name), loaded)
        return state

    @property
    def all_settled(self) -> bool:
        """Whether every step of the workflow has ended."""
        settled = sum(state.settled for state in self.values())
        return settled + self._sealed.steps == len(self._workflow.steps)

    def unseal(self, sealed: Sealed) -> None:
        """Go by another account of what is sealed (a redrive takes steps back into the head)."""
        self._sealed = sealed
