"""The fixture `explore` for workflow authors.

Their conftest.py says `pytest_plugins = ["fanfold.testing.pytest_plugin"]`.

No entry point tells pytest of it: whoever installs the client alone would have a fixture that can't work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fanfold.explore import Exploration


@pytest.fixture
def explore() -> Callable[..., Exploration]:
    """As `fanfold.explore.explore`, and the test fails where a run ends wrong, telling after which call and how."""
    # Not before it is asked for: tests that explore nothing need not load the service.
    from fanfold.explore import explore as explored

    def must_be_right(*args: Any, **given: Any) -> Exploration:
        __tracebackhide__ = True
        found = explored(*args, **given)
        found.must_be_right()
        return found

    return must_be_right
