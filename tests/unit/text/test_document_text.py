"""Documents' text: JSON is read as JSON, YAML has JSON's scalars, and client, explorer and API read the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanfold import Client
from fanfold.explore.explorer import _read
from fanfold.service.api.documents import document_of
from fanfold.service.api.problems import Refused
from fanfold.service.api.requests import Request
from fanfold.text.document_text import MalformedText, from_text
from tests.support.examples import examples

TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["no", "on", "~", "null", "Null", "<<", "=", "12:30", "010", "0o7", "0x1F", "1e3", ".5", "+1", "1_000", ".inf"]
    ),
    st.sampled_from(
        ["a\x85b", "\u2028", "\u2029 ", "\t", "\n", " a", "a ", "# a", "- a", "a: b", "!a", "&a", "*a", "😀"]
    ),
    st.sampled_from(["2026-01-01", "2026-01-01T12:00:00Z", "00:11:22:33:44:55", "ab:cd", "", "\ufeff", "x" * 1_100]),
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@settings(**examples(300), suppress_health_check=list(HealthCheck))
@given(VALUES, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_what_json_writes_is_read_as_it_was(value: Any, indent: int | str | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert repr(from_text(text)) == repr(value)
    assert repr(from_text(text.encode("utf-8"))) == repr(value)


def block(value: Any, level: int = 0) -> str:
    """YAML in blocks that says a value in the core schema: texts in quotes, everything else plain."""
    pad = "  " * level
    if isinstance(value, dict) and value:
        return "".join(f"{pad}? {quoted(key)}\n{pad}: {below(item, level)}" for key, item in value.items())
    if isinstance(value, list) and value:
        return "".join(f"{pad}- {below(item, level)}" for item in value)
    return pad + below(value, level)


def below(value: Any, level: int) -> str:
    if isinstance(value, (dict, list)) and value:
        return "\n" + block(value, level + 1)
    return (quoted(value) if isinstance(value, str) else json.dumps(value)) + "\n"


def quoted(text: str) -> str:
    """A text in double quotes; only what YAML's reader takes for no character is escaped."""
    escaped = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\ufeff": "\\uFEFF", " ": "\\x20", "\t": "\\t"}
    return (
        '"'
        + "".join(escaped.get(c, c if yaml.reader.Reader.NON_PRINTABLE.match(c) is None else escape(c)) for c in text)
        + '"'
    )


def escape(character: str) -> str:
    return f"\\U{ord(character):08X}"


@settings(**examples(300), suppress_health_check=list(HealthCheck))
@given(VALUES)
def test_what_the_core_schema_writes_is_read_as_it_was(value: Any) -> None:
    assert repr(from_text(block(value))) == repr(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, text) for text in ("no", "yes", "on", "off", "y", "N", "True1", "nUll", "NULL ~")),
        *((text, text) for text in ("12:30", "1:30:00", "00:11:22:33:44:55", "2026-01-01", "2026-01-01 12:00:00")),
        *((text, text) for text in ("1_000", "0b11", "0x", "0o8", "1e", "e3", ".", "+", "1.2.3", "=", "-0x1")),
        *((text, None) for text in ("", "~", "null", "Null", "NULL", "# nothing", "---\n...")),
        *((text, True) for text in ("true", "True", "TRUE")),
        *((text, False) for text in ("false", "False", "FALSE")),
        *((text, 10) for text in ("10", "010", "+10", "0xa", "0xA", "0o12")),
        *((text, 1000.0) for text in ("1e3", "1.E3", "+1000.0", "1e+3", "1000.")),
        *((text, -0.5) for text in ("-.5", "-0.5", "-5e-1")),
        ("'no'", "no"),
        ('"010"', "010"),
        ("|\n  1", "1"),
        ("[a, b: c]", ["a", {"b": "c"}]),
        ("{a, b: }", {"a": None, "b": None}),
        ("'<<': 1", {"<<": 1}),
        ("- <<", ["<<"]),
        ("a: &x 1\nb: *x\nc: &x 2\nd: *x", {"a": 1, "b": 1, "c": 2, "d": 2}),
        ("&k a: 1\nb: *k", {"a": 1, "b": "a"}),
        ("a: 'x\x85y\u2028z'", {"a": "x\x85y\u2028z"}),
        ("a: x\x85y\n", {"a": "x\x85y"}),
        ('a: "\\ud83d"'.replace("ud83d", "U0001F600"), {"a": "😀"}),
        ('\ufeff{"a": 1}', {"a": 1}),
        ("\ufeffa: 1", {"a": 1}),
        ("{'a': 1,}", {"a": 1}),
    ],
)
def test_scalars_are_those_of_yaml_1_2s_core_schema(text: str, value: Any) -> None:
    assert repr(from_text(text)) == repr(value)


def test_what_merge_keys_bring_in_is_overridden_by_what_is_written() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {y: 3, <<: *a}\nd: {<<: [*a, *b], z: 4}\n"
    read = from_text(text)
    assert (read["c"], read["d"]) == ({"y": 3, "x": 1}, {"z": 4, "x": 1, "y": 1})
    assert read["a"] == {"x": 1, "y": 1}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: !!bool foo", r"line 2, column 4: .*tag"),
        ("a: !!int ''", "line 1, column 4: .*tag"),
        ("a: !!float ''", "line 1, column 4: .*tag"),
        ("a: !!timestamp foo", "line 1, column 4: .*tag"),
        ("a: !!str 5", "line 1, column 4: .*tag"),
        ("a: ! 5", "line 1, column 4: .*tag"),
        ("a: !!set {x}", "line 1, column 4: .*tag"),
        ("a: !!python/object/apply:os.system [ls]", "line 1, column 4: .*tag"),
        ("!foo\na: 1", "line 1, column 1: .*tag"),
        ("a: 1\nb: .nan", "line 2, column 4: .nan is not JSON"),
        ("a: -.inf", "line 1, column 4: -.inf is not JSON"),
        ("a: 1e400", "line 1, column 4: .*out of range"),
        ("a: " + "1" * 5_000, "line 1, column 4: .*digits"),
        ("a: 0x" + "f" * 5_000, "line 1, column 4: .*digits"),
        ("a: 1\na: 2", "line 2, column 1: the key 'a' occurs twice"),
        ("a: 1\n'a': 2", "line 2, column 1: the key 'a' occurs twice"),
        ("a: 1\n1: 2", "line 2, column 1: the key 1 must be a string"),
        ("~: 2", "line 1, column 1: the key null must be a string"),
        ("? [1]\n: 2", "line 1, column 3: .* must be a string"),
        ("a: &a [1]\n*a : 2", "line 2, column 1: .* must be a string"),
        ("--- 1\n--- 2", "line 2, column 1: another document"),
        ("a: *b", "line 1, column 4: there is no anchor b"),
        ("&a [*a]", "line 1, column 5: .* is a part of what it stands for"),
        ("a: &a {<<: *a}", "line 1, column 12: .* is a part of what it stands for"),
        ("<<: 1", "line 1, column 5: `<<` takes in a mapping"),
        ("<<: [{}, 1]", "line 1, column 5: `<<` takes in a mapping"),
        ("a: [", "line [12], column "),
        ("a: 'x", "line 1, column "),
        ("a: b: c", "line 1, column 5: "),
        ("\ta: 1", "line 1, column "),
        ("a: \x07", "line 1, column 4: "),
        ("é: 1\né\x07: 1", "line 2, column 2: "),
        ("a: \ud800", "line 1, column 4: "),
        (b"a: 1\nb\xff: 2", "line 2, column 2: the text is not UTF-8"),
        ("[" * 200 + "]" * 200, "nested deeper than 100"),
        ("- " * 200, "nested deeper than 100"),
        ("[" * 60 + "&a " + "[" * 60, "nested deeper than 100"),
        ("a: &a " + "[" * 60 + "]" * 60 + "\nb: " + "[" * 60 + "*a" + "]" * 60, "line 2, column 64: .*deeper than 100"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": 1, "a": 2}', "'a' occurs twice"),
        ('{"a": 1e400}', "out of range"),
    ],
)
def test_what_is_not_json_in_yaml_is_told_with_line_and_column(text: str | bytes, told: str) -> None:
    with pytest.raises(MalformedText, match=told):
        from_text(text)
    body = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    with pytest.raises(Refused) as refused:
        document_of(Request(method="PUT", path="", headers={"content-type": "application/yaml"}, body=body))
    assert (refused.value.problem.status, refused.value.problem.slug) == (400, "malformed-yaml")


DOCUMENTS = (
    '{"name": "w", "steps": {"a": {"task": "core.echo", "input": {"x": 1e3, "\\ud83d\\ude00": "a\x85b"}}}}',
    '{\n\t"name": "w",\n\t"' + "k" * 1_100 + '": "no"\n}',
    "name: w\nversion: 010\nsteps: {a: {input: {country: no, at: 12:30, mac: 00:11:22:33:44:55, id: 1e3}}}\n",
    "\ufeffname: w\nsteps: {}\n",
)


@pytest.mark.parametrize("text", DOCUMENTS)
@pytest.mark.parametrize("encoded", [False, True])
def test_client_explorer_and_service_read_the_same(text: str, encoded: bool, tmp_path: Path) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(201, json={"name": "w", "version": "sha256:0", "created_at": "…"})

    with Client("https://example.org", "t", transport=httpx.MockTransport(answer)) as client:
        client.apply(text.encode("utf-8") if encoded else text)
    (request,) = sent
    assert request.url.path == "/v1/workflows/w"
    (tmp_path / "w.yaml").write_text(text, encoding="utf-8")
    headers = {"content-type": request.headers["content-type"]}
    served = document_of(Request(method="PUT", path="", headers=headers, body=request.content))
    assert served == from_text(text) == _read(tmp_path / "w.yaml")
