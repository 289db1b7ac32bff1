"""Every scenario by its name."""

from __future__ import annotations

from collections.abc import Mapping

from loadtest.scenario import Scenario
from loadtest.scenarios.coldstart import coldstart
from loadtest.scenarios.cost import cost
from loadtest.scenarios.diamond import diamond
from loadtest.scenarios.driver import driver
from loadtest.scenarios.engine import engine
from loadtest.scenarios.history import history
from loadtest.scenarios.kills import kills
from loadtest.scenarios.mixed import mixed
from loadtest.scenarios.open import open_loop
from loadtest.scenarios.peer_stepfunctions import peer_stepfunctions
from loadtest.scenarios.peer_swarmkit import peer_swarmkit
from loadtest.scenarios.ramp import ramp
from loadtest.scenarios.scale import scale
from loadtest.scenarios.soak import soak
from loadtest.scenarios.storm import storm
from loadtest.scenarios.team import team
from loadtest.scenarios.workers import workers_scenario

SCENARIOS: Mapping[str, Scenario] = {
    "coldstart": coldstart,
    "cost": cost,
    "diamond": diamond,
    "driver": driver,
    "engine": engine,
    "history": history,
    "kills": kills,
    "mixed": mixed,
    "open": open_loop,
    "peer-stepfunctions": peer_stepfunctions,
    "peer-swarmkit": peer_swarmkit,
    "ramp": ramp,
    "scale": scale,
    "soak": soak,
    "storm": storm,
    "team": team,
    "workers": workers_scenario,
}
