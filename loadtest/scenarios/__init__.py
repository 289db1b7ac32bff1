"""Every scenario by its name."""

from __future__ import annotations

from collections.abc import Mapping

from loadtest.scenario import Scenario
from loadtest.scenarios.diamond import diamond

SCENARIOS: Mapping[str, Scenario] = {
    "diamond": diamond,
}
