"""What this process has counted, kept for a test to look at."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fanfold.service.telemetry.metric_buffer import Series, taken


def keep_counts(patch: pytest.MonkeyPatch) -> None:
    """Forget what was counted before, and let no worker write what comes: it would, each minute and at its end."""
    patch.setattr("fanfold.service.worker.process.flush", lambda: None)
    taken()


def totals() -> Mapping[Series, float]:
    """All that was counted since the last time, each series summed."""
    return {series: sum(values) for series, values in taken().items()}
