"""An AWS that answers from a script: for what no emulator can be made to answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fanfold.adapters.aws.calls import Client


class ScriptedCall:
    """A `Call` that gives these answers in turn, raising those that are errors; `asked` counts the calls."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    @property
    def operations(self) -> Sequence[str]:
        """What was asked, in order."""
        return [operation for operation, _ in self.asked]

    async def __call__(self, client: Client, operation: str, /, **parameters: Any) -> Any:
        self.asked.append((operation, parameters))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer
