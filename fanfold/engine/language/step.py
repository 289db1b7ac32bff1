"""What all steps have, whatever their kind, and what a kind has to say of its part of a document."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar

from fanfold.engine.errors import InvalidDocument
from fanfold.engine.language.templates import Slot, Template, compile_template
from fanfold.engine.payload import Json

if TYPE_CHECKING:
    from fanfold.engine.language.step_checks import StepChecks


class Join(StrEnum):
    """When a step with needs gets its turn; it gets it once."""

    SUCCEEDED = "succeeded"  # all needs succeeded; otherwise the step is skipped
    SETTLED = "settled"  # all needs have settled, however
    ANY = "any"  # the first need succeeded; skipped when none did


class OnFailure(StrEnum):
    """What a step's final failure means for its run."""

    FAIL = "fail"  # the run fails at once
    CONTINUE = "continue"  # the step settles as failed, the run goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyStep:
    """A step of whatever kind: after which others it has its turn, and what its failure means."""

    name: str
    needs: tuple[str, ...] = ()
    join: Join = Join.SUCCEEDED
    when: Template | None = None
    on_failure: OnFailure = OnFailure.FAIL

    @property
    @abstractmethod
    def own_templates(self) -> tuple[Template, ...]:
        """What only steps of this kind have to be evaluated."""

    @property
    def templates(self) -> tuple[Template, ...]:
        """Everything of the step that is evaluated against its run."""
        return self.own_templates if self.when is None else (self.when, *self.own_templates)

    @property
    def reads(self) -> frozenset[str]:
        """The steps whose record this one may look at before it has settled."""
        return frozenset(self.needs).union(*(template.steps for template in self.templates))


class StepFields(TypedDict):
    """The fields of `AnyStep`."""

    name: str
    needs: tuple[str, ...]
    join: Join
    when: Template | None
    on_failure: OnFailure


def fields_of(name: str, source: Mapping[str, Json]) -> StepFields:
    """What a checked step of a document says whatever its kind is."""
    return StepFields(
        name=name,
        needs=tuple(source.get("needs", ())),
        join=Join(source.get("join", Join.SUCCEEDED)),
        when=template_of(source["when"]) if "when" in source else None,
        on_failure=OnFailure(source.get("on_failure", OnFailure.FAIL)),
    )


def template_of(source: Json) -> Template:
    """The template of a checked document. Raises `InvalidDocument` for one that was never checked."""
    template, problems = compile_template(source, "")
    if template is None:
        raise InvalidDocument(tuple(problems))
    return template


S = TypeVar("S", covariant=True)


def _calls_nothing(step: Mapping[str, Json], pointer: str, checks: StepChecks) -> None:
    """There is no task to look for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKind(Generic[S]):
    """How steps of a kind stand in a document: under `key`, of which a step has exactly one.

    `check` finds what is wrong with the kind's part and returns its expressions; `check_task` comes before all else,
    and only where the step has no second kind. `parse` makes the step of a checked document; it is given the step's
    name, its source, and the longest step of the class in seconds. `has_input`: the step's `input` is read as its own.
    """

    key: str
    check: Callable[[Mapping[str, Json], str, StepChecks], Sequence[Slot]]
    check_task: Callable[[Mapping[str, Json], str, StepChecks], None] = _calls_nothing
    parse: Callable[[str, Mapping[str, Json], float], S]
    has_input: bool = True
