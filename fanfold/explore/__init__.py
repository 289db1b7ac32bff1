"""The crash explorer: kills the worker of a run at every place it can die, and looks how the run ends.

    exploration = explore("order.yaml", {"order": 7})
    exploration.must_be_right()

Tasks are executed for real, in this process, on virtual time: what they call outside must be faked. What
they say they do by `fanfold.tasks.effects.effect` is counted. docs/guarantees.md has an example.
"""

from fanfold.explore.comparison import Wrong
from fanfold.explore.explorer import Check, Exploration, Point, WrongEnds, explore
from fanfold.explore.trace import Effect

__all__ = ["Check", "Effect", "Exploration", "Point", "Wrong", "WrongEnds", "explore"]
