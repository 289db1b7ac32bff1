"""The security rules really run, and what they would say is answered or absent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fanfold.cdk import nag
from tests.infra.conftest import Synthesised


def test_a_disposable_stack_passes_too(synth: Callable[..., Synthesised]) -> None:
    assert synth({"stage": "dev"}, nag=True).functions()


def test_a_finding_that_nobody_accepted_stops_the_synth(
    synth: Callable[..., Synthesised], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(nag.ACCEPTED, "AwsSolutions-APIG4")

    with pytest.raises(RuntimeError, match="ValidationFailed"):
        synth({"stage": "prod"}, nag=True)
