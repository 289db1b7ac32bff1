"""A changed copy of a record's value is what `dataclasses.replace` makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fanfold.engine.record.fast_replace import fast_replace
from fanfold.engine.record.run import StepState, StepStatus
from tests.support.records import finished_diamond


def test_a_changed_copy_is_what_replace_makes_and_the_value_stays_as_it_was() -> None:
    run = finished_diamond()
    again = fast_replace(run, version=run.version + 1, write_id="w", steps={})
    assert again == replace(run, version=run.version + 1, write_id="w", steps={})
    assert run == finished_diamond()
    assert hash(fast_replace(StepState(), attempts=2)) == hash(StepState(attempts=2))


def test_a_changed_copy_can_not_be_changed_itself() -> None:
    state = fast_replace(StepState(), status=StepStatus.RUNNING)
    with pytest.raises(AttributeError):
        state.attempts = 3  # type: ignore[misc]  # what it refuses


def test_only_fields_can_be_changed() -> None:
    with pytest.raises(TypeError, match="colour"):
        fast_replace(StepState(), colour="red")
