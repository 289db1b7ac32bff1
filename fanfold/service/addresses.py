"""The queues and state machines of all classes in an environment: their names, and once what all addresses begin with.

A function's environment has 4,096 bytes, counted as JSON with every quote escaped (Lambda quotas): whole addresses of
five classes fill it. One variable therefore lists, for each class, `class=lane,lane/…` and the names of its lanes, of
`resume` and `dead`, and of its state machine, in this order, without a quote; classes are separated by `;`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fanfold.engine.record.messages import DEAD, RESUME

QUEUES: Final = "FANFOLD_QUEUES"
QUEUES_AT: Final = "FANFOLD_QUEUES_AT"
MACHINES_AT: Final = "FANFOLD_MACHINES_AT"
VARIABLES: Final = frozenset({QUEUES, QUEUES_AT, MACHINES_AT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """What `queues_at` (with its slash) makes a queue's URL of a name, and `machines_at` a state machine's ARN.

    `queues` has the names by class and role, lanes first and the best of them first; `machines` by class.
    """

    queues_at: str
    machines_at: str
    queues: Mapping[str, Mapping[str, str]]
    machines: Mapping[str, str] = field(default_factory=dict)

    def to_env(self) -> dict[str, str]:
        """The variables that `read` understands."""
        classes = (
            "/".join(
                (
                    f"{class_name}={','.join(role for role in names if role not in (RESUME, DEAD))}",
                    *(name for role, name in names.items() if role not in (RESUME, DEAD)),
                    names[RESUME],
                    names[DEAD],
                    self.machines.get(class_name, ""),
                )
            )
            for class_name, names in self.queues.items()
        )
        at = {QUEUES_AT: self.queues_at, **({MACHINES_AT: self.machines_at} if self.machines else {})}
        return {QUEUES: ";".join(classes), **at}


def read(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The lanes, queue URLs and state machine of each class an environment lists, as fields of its settings.

    Raises ValueError where the text is of another form.
    """
    text = environ.get(QUEUES, "")
    return dict(_class(each, environ) for each in text.split(";") if each)


def _class(text: str, environ: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    head, *names = text.split("/")
    class_name, _, listed = head.partition("=")
    lanes = tuple(listed.split(","))
    if not listed or len(names) != len(lanes) + 3:
        raise ValueError(f"{QUEUES}: {text!r} does not list the queues of a class")
    *queues, machine = names
    urls = {role: environ.get(QUEUES_AT, "") + name for role, name in zip((*lanes, RESUME, DEAD), queues, strict=True)}
    arn = environ.get(MACHINES_AT, "") + machine if machine else ""
    return class_name, {"lanes": lanes, "queues": urls, "state_machine": arn}
