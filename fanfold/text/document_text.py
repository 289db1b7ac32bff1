"""A document's text, JSON or YAML → the JSON it stands for: one parser for the API, the client and the explorer.

JSON is read as JSON. Everything else is read as YAML 1.2 with JSON's scalars and no others, built from the parser's
events: PyYAML's own resolver and constructors speak YAML 1.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fanfold.engine.payload import MAX_DEPTH, Json, deeper_than, parse
from fanfold.text.core_schema import plain_scalar

if TYPE_CHECKING:
    import yaml

MAX_NODES = 500_000
"""How many values a document may have with its aliases written out: a few lines of YAML can stand for billions."""
MAX_CHARACTERS = 8_000_000
"""How many characters its texts may have with its aliases written out: more than any request's body holds."""
MAX_TAG_DIRECTIVES = 100
"""Each `%TAG` is compared with all that came before."""

_TAG_DIRECTIVE = re.compile(r"^%TAG|(?<=[\r\n])%TAG")


class MalformedText(ValueError):
    """The text is neither JSON nor YAML that stands for JSON. Says where: `line 3, column 7: …`."""


def from_text(text: str | bytes) -> Json:
    """What the text says; raises MalformedText."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _malformed(_place(error.object[: error.start].decode("utf-8")), "the text is not UTF-8") from error
    text = text.removeprefix("\ufeff")
    try:
        value = parse(text)
    except json.JSONDecodeError:
        return _Builder(text).document()
    except ValueError as error:
        # It is JSON, and leaves open what it means (NaN, a key twice): YAML would find a meaning for some of that.
        raise MalformedText(str(error)) from error
    if deeper_than(value, MAX_DEPTH):
        raise MalformedText(f"the document is nested deeper than {MAX_DEPTH} levels")
    return value


# --- the tree -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """A value that is being built, or was: what it weighs, written out, as part of another."""

    value: Json
    mark: Any
    anchor: str | None = None
    is_open: bool = False
    nodes: int = 1
    characters: int = 0
    height: int = 0
    """Levels of lists and mappings in it, itself included."""
    merged: list[dict[str, Json]] = field(default_factory=list)
    """The mappings that `<<` brings in: what is written beside it goes before, and the first before the others."""
    key: str | None = None
    """The key whose value comes next, in a mapping."""
    is_merge: bool = False
    """Whether what comes next is the value of `<<`."""


class _Builder:
    """One YAML text, read once from its start to its end; time and memory are linear in the text."""

    def __init__(self, text: str) -> None:
        self._text, self._back = _unbroken(text)
        self._stack: list[_Node] = []
        self._anchors: dict[str, _Node] = {}
        self._root: _Node | None = None
        self._nodes = 0
        self._characters = 0

    def document(self) -> Json:
        """The value of the one document there is; None where the text has none. Raises MalformedText."""
        if len(directives := list(_TAG_DIRECTIVE.finditer(self._text))) > MAX_TAG_DIRECTIVES:
            raise _malformed(_place(self._text[: directives[-1].start()]), "there are too many %TAG directives")
        # YAML comes seldom, and most processes never see any.
        import yaml

        documents = 0
        for event in self._events():
            match event:
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        raise _malformed(event.start_mark, "another document begins: one text is one document")
                case yaml.ScalarEvent():
                    self._refuse_tag(event)
                    self._scalar(event)
                case yaml.AliasEvent():
                    self._alias(event)
                case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                    self._refuse_tag(event)
                    self._begin([] if isinstance(event, yaml.SequenceStartEvent) else {}, event)
                case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                    self._end()
        return None if self._root is None else self._root.value

    def _events(self) -> Iterator[Any]:
        import yaml

        # libyaml's parser where the wheel has it: ten times faster, the same language.
        try:
            yield from yaml.parse(self._text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.MarkedYAMLError as error:
            told = ": ".join(part for part in (error.context, error.problem) if part)
            raise _malformed(error.problem_mark or error.context_mark, told) from error
        except yaml.reader.ReaderError as error:
            # libyaml counts bytes, PyYAML's own reader characters; both know which character it was.
            at = self._text.find(chr(error.character)) if isinstance(error.character, int) else -1
            raise _malformed(_place(self._text[: max(at, 0)]), error.reason) from error
        except UnicodeEncodeError as error:
            raise _malformed(_place(self._text[: error.start]), "half of a surrogate pair is no character") from error

    def _refuse_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag is not None:
            raise _malformed(event.start_mark, f"the tag {event.tag[:100]} has no meaning here: JSON has no tags")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        text = event.value
        for placeholder, meant in self._back:
            text = text.replace(placeholder, meant)
        plain = not event.style
        top = self._stack[-1] if self._stack else None
        if plain and text == "<<" and top is not None and isinstance(top.value, dict) and not _awaits_value(top):
            top.is_merge = True
            return
        try:
            value = plain_scalar(text) if plain else text
        except ValueError as error:
            raise _malformed(event.start_mark, str(error)) from error
        self._add(_Node(value, event.start_mark, event.anchor, characters=len(text)))

    def _alias(self, event: yaml.AliasEvent) -> None:
        name = str(event.anchor)
        node = self._anchors.get(name)
        if node is None:
            raise _malformed(event.start_mark, f"there is no anchor {name[:100]} before this alias")
        if node.is_open:
            raise _malformed(event.start_mark, f"the alias {name[:100]} is a part of what it stands for")
        self._check_depth(node.height, event.start_mark)
        self._add(_Node(node.value, event.start_mark, nodes=node.nodes, characters=node.characters, height=node.height))

    def _begin(self, value: Json, event: yaml.CollectionStartEvent) -> None:
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and not _awaits_value(top):
            raise _malformed(event.start_mark, "a mapping's key must be a string")
        self._check_depth(1, event.start_mark)
        node = _Node(value, event.start_mark, event.anchor, is_open=True, height=1)
        if node.anchor is not None:
            self._anchors[node.anchor] = node
        self._stack.append(node)

    def _end(self) -> None:
        node = self._stack.pop()
        for source in node.merged:
            for key, value in source.items():
                node.value.setdefault(key, value)
        node.is_open = False
        # Its parts were counted as they came.
        self._nodes -= node.nodes - 1
        self._characters -= node.characters
        self._add(node)

    def _add(self, node: _Node) -> None:
        self._count(node, node.mark)
        if node.anchor is not None:
            self._anchors[node.anchor] = node
        if not self._stack:
            self._root = node
            return
        top = self._stack[-1]
        top.nodes += node.nodes
        top.characters += node.characters
        top.height = max(top.height, node.height + (not top.is_merge))  # what is taken in lies no deeper
        if isinstance(top.value, list):
            top.value.append(node.value)
        elif top.is_merge:
            top.is_merge = False
            self._take_in(top, node)
        elif top.key is not None:
            top.value[top.key] = node.value
            top.key = None
        else:
            self._key(top, node)

    def _key(self, mapping: _Node, node: _Node) -> None:
        key = node.value
        if not isinstance(key, str):
            told = "a mapping's key" if node.height else f"the key {json.dumps(key)[:100]}"
            raise _malformed(node.mark, f"{told} must be a string: put it in quotes")
        if key in mapping.value:
            raise _malformed(node.mark, f"the key {key[:100]!r} occurs twice in one mapping")
        mapping.key = key

    def _take_in(self, mapping: _Node, node: _Node) -> None:
        """What `<<` stands for. It was counted as every part of the document is, and is not looked at again."""
        sources = node.value if isinstance(node.value, list) else [node.value]
        if mapping.merged or not all(isinstance(source, dict) for source in sources):
            raise _malformed(node.mark, "`<<` takes in a mapping, or a list of mappings, once")
        mapping.merged = sources

    def _check_depth(self, height: int, mark: object) -> None:
        if len(self._stack) + height > MAX_DEPTH:
            raise _malformed(mark, f"the document is nested deeper than {MAX_DEPTH} levels")

    def _count(self, node: _Node, mark: object) -> None:
        self._nodes += node.nodes
        self._characters += node.characters
        if self._nodes > MAX_NODES:
            raise _malformed(mark, f"the document has more than {MAX_NODES:,} values with its aliases written out")
        if self._characters > MAX_CHARACTERS:
            raise _malformed(mark, f"the document has more than {MAX_CHARACTERS:,} characters in texts")


def _awaits_value(mapping: _Node) -> bool:
    return mapping.key is not None or mapping.is_merge


# --- text -----------------------------------------------------------------------------------------

_BREAKS = "\x85\u2028\u2029"
"""Line breaks in YAML 1.1, and so for libyaml, which would make them blanks; characters like others in 1.2 and JSON."""


def _unbroken(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The text with stand-ins for the characters that only YAML 1.1 breaks lines at, and what they stand for."""
    found = [each for each in _BREAKS if each in text]
    if not found:
        return text, []
    free = (chr(code) for code in range(0xE000, 0xF900) if chr(code) not in text)  # of Unicode's private use area
    back = []
    for each in found:
        stand_in = next(free, None)
        if stand_in is None:
            raise MalformedText("the text uses up Unicode's private use area")
        text = text.replace(each, stand_in)
        back.append((stand_in, each))
    return text, back


@dataclass(frozen=True, slots=True)
class _Place:
    line: int
    column: int


def _place(before: str) -> _Place:
    """Where a character is, by the text before it."""
    return _Place(before.count("\n"), len(before) - (before.rfind("\n") + 1))


def _malformed(mark: Any, told: str) -> MalformedText:
    return MalformedText(f"line {mark.line + 1}, column {mark.column + 1}: {told}" if mark is not None else told)
