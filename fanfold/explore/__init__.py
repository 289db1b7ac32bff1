"""The crash explorer: kills a run's worker at every place where it can die, and checks how the run ends.

    exploration = explore("order.yaml", {"order": 7})
    exploration.must_be_right()

Tasks really run, in this process and on virtual time, so fake the services that they call. The explorer counts the
effects that they report with `fanfold.tasks.effects.effect`. docs/guarantees.md has an example.
"""

from fanfold.explore.comparison import Wrong
from fanfold.explore.explorer import Check, Exploration, Point, WrongEnds, explore
from fanfold.explore.trace import Effect

__all__ = ["Check", "Effect", "Exploration", "Point", "Wrong", "WrongEnds", "explore"]
