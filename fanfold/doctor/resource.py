"""A resource of the stack as its template has it, and what an event source mapping's template says of its two ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TARGETS = ("AWS::Lambda::Alias", "AWS::Lambda::Function")
"""What a mapping can hand batches to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource of the stack: its name in the template, its type, what AWS calls it, and what the template asks."""

    logical_id: str
    kind: str
    physical_id: str
    properties: Mapping[str, Any]


def ends(mapping: Resource, resources: Sequence[Resource]) -> tuple[str | None, str | None]:
    """What AWS calls a mapping's queue (its URL) and function (a name, or an alias's ARN), where they are ours."""
    known = {each.logical_id: each for each in resources}
    source = next(_references(mapping.properties.get("EventSourceArn")), "")
    named = (known[name] for name in _references(mapping.properties.get("FunctionName")) if name in known)
    target = next((each.physical_id for each in named if each.kind in TARGETS), None)
    return known[source].physical_id if source in known else None, target


def _references(value: Any) -> Iterator[str]:
    """The resources that a property's value refers to, however it is put together."""
    match value:
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), *_]}:
            yield name
        case Mapping():
            for part in value.values():
                yield from _references(part)
        case list():
            for part in value:
                yield from _references(part)
