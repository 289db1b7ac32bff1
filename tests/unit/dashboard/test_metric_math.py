"""Metric math gives what CloudWatch's guide says it gives, and says what is wrong with what it can't evaluate."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanfold.dashboard.evaluate import Given, evaluate
from fanfold.dashboard.formula import FormulaError, names_in, parse
from fanfold.dashboard.series import Series

PERIOD_SECONDS = 60


def several(text: str, **series: Series) -> list[Series]:
    slots = max((len(one) for one in series.values()), default=3)
    on = Given(series=series, metrics=list(series), period_seconds=PERIOD_SECONDS, slots=slots)
    return list(evaluate(parse(text), on))


def one(text: str, **series: Series) -> Series:
    (found,) = several(text, **series)
    return found


_ = None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The tables of the guide, "Comparison and logical operators" and "Using IF expressions".
        ("metric1 < metric2", (0, 0, 1, 0)),
        ("metric1 >= 30", (1, 0, 0, 0)),
        ("metric1 > 15 AND metric2 > 15", (1, 0, 0, 0)),
    ],
)
def test_comparisons_are_those_of_the_guide(text: str, expected: Series) -> None:
    assert one(text, metric1=(30, 20, 0, 0), metric2=(20, _, 20, _)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("IF(metric1, metric2, metric3)", (30, 0, 20, _, _)),
        ("IF(metric1, 5, metric3)", (5, 5, 20, _, _)),
        ("IF(metric1, metric2, 5)", (30, 0, 5, 5, _)),
        ("IF(metric1, metric2)", (30, 0, _, _, _)),
        ("IF(1, metric2, metric3)", (30, _, 0, 0, 30)),
        ("IF(0, metric2)", (_, _, _, _, _)),
    ],
)
def test_if_is_that_of_the_guide(text: str, expected: Series) -> None:
    metrics: dict[str, Series] = {
        "metric1": (1, 1, 0, 0, _),
        "metric2": (30, _, 0, 0, 30),
        "metric3": (0, 0, 20, _, 20),
    }
    assert one(text, **metrics) == expected


def test_what_is_missing_on_one_side_counts_as_nothing_and_on_both_sides_stays_missing() -> None:
    a, b = (1.0, 2.0, _, _), (10.0, _, 30.0, _)
    assert one("a + b", a=a, b=b) == (11, 2, 30, _)
    assert one("a * 2", a=a) == (2, 4, _, _)


def test_a_point_that_would_be_divided_by_zero_is_dropped() -> None:
    assert one("100 * failed / (failed + ended)", failed=(1.0, 0.0, _), ended=(3.0, 0.0, 4.0)) == (25, _, 0)


def test_operators_bind_as_in_arithmetic() -> None:
    assert one("1 + a * 2 ^ 2 - -a / 2", a=(4.0,)) == (1 + 16 + 2,)
    assert one("a > 1 OR a > 100 && a < 0", a=(4.0,)) == (1,)
    assert one("(a - 1) - (1 - a)", a=(4.0,)) == (6,)


def test_a_gap_is_filled_as_asked() -> None:
    gaps = (_, 2.0, _, _, 8.0, _)
    assert one("FILL(m, 0)", m=gaps) == (0, 2, 0, 0, 8, 0)
    assert one("FILL(m, REPEAT)", m=gaps) == (_, 2, 2, 2, 8, 8)
    assert one("FILL(m, LINEAR)", m=gaps) == (_, 2, 4, 6, 8, _)
    assert one("FILL(m, n)", m=gaps, n=(9.0,) * 6) == (9, 2, 9, 9, 8, 9)
    assert several("FILL(METRICS(), 1)", m=(_,), n=(2.0,)) == [(1,), (2,)]


def test_several_series_are_taken_together_slot_by_slot() -> None:
    errors, requests = (1.0, _, 3.0, _), (4.0, 8.0, _, _)
    assert one("SUM(METRICS())", errors=errors, requests=requests) == (5, 8, 3, _)
    assert one("SUM([errors, requests])", errors=errors, requests=requests) == (5, 8, 3, _)
    assert one("AVG(METRICS())", errors=errors, requests=requests) == (2.5, 4, 1.5, _)
    assert one("MAX(METRICS())", errors=errors, requests=requests) == (4, 8, 3, _)
    assert one("MIN(METRICS())", errors=errors, requests=requests) == (1, 8, 3, _)
    assert several('METRICS("err")', errors=errors, requests=requests) == [errors]
    assert several("METRICS() * 2", m=(1.0,), n=(2.0,)) == [(2,), (4,)]


def test_one_series_is_taken_together_to_a_number() -> None:
    m = (1.0, _, 5.0)
    assert one("m - AVG(m)", m=m) == (-2, _, 2)
    assert one("TIME_SERIES(SUM(m) + MAX(m) + MIN(m) + DATAPOINT_COUNT(m))", m=m) == (14, 14, 14)


def test_changes_are_told_between_points_that_are_there() -> None:
    m = (60.0, _, 300.0, 240.0)
    assert one("DIFF(m)", m=m) == (_, _, 240, -60)
    assert one("RATE(m)", m=m) == (_, _, 2, -1)
    assert one("m / PERIOD(m)", m=m) == (1, _, 5, 4)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SEARCH('x', 'Sum', 300)", "SEARCH is no function known here; there are: ABS, AVG"),
        ("sum(m)", "sum is no function"),
        ("m + nobody", "'nobody'"),
        ("SUM(m)", "a number"),
        ("5", "a number"),
        ("m +", "the end"),
        ("(m", "')' expected"),
        ("m)", "the end expected"),
        ("m $ 2", "'$' at 3"),
        ("IF(m)", "2 to 3 arguments, not 1"),
        ("FILL(m, LATER)", "LATER"),
        ("FILL(1, 0)", "a series was expected"),
        ("IF([m], m, 0)", "an array"),
        ("PERIOD(m + m)", "the id of one metric"),
        ("1 / 0 + m", "has no value"),
        ("'text' + m", "the word"),
        ("", "found the end"),
        ("(" * 100 + "m" + ")" * 100, "nested"),
    ],
)
def test_what_has_no_value_is_told_with_what_is_wrong_with_it(text: str, says: str) -> None:
    with pytest.raises(FormulaError, match=re.escape(says)):
        several(text, m=(1.0, 2.0))


def test_the_ids_that_an_expression_needs_are_known() -> None:
    assert names_in(parse('IF(a > 1, SUM([b, METRICS("q")]), -c) ^ 2')) == {"a", "b", "c"}


@dataclass(frozen=True, slots=True)
class Case:
    """An expression, and what it is at each slot by a rule that knows nothing of series."""

    text: str
    by_slot: tuple[float | None, ...]


SLOTS = 3
IDS = ("a", "b", "c")
NUMBERS = st.integers(-3, 3).map(float)
SERIES = st.tuples(*[st.none() | NUMBERS] * SLOTS)


def _at(sign: str, left: float, right: float) -> float | None:
    if sign == "/":
        return left / right if right else None
    return {"+": left + right, "-": left - right, "*": left * right, "<": float(left < right)}[sign]


@st.composite
def cases(draw: st.DrawFn, series: Mapping[str, Series], depth: int = 3) -> Case:
    kind = draw(st.sampled_from(["id", "operator", "fill", "if", "sum"])) if depth else "id"
    if kind == "id":
        name = draw(st.sampled_from(IDS))
        return Case(name, series[name])
    first = draw(cases(series, depth - 1))
    if kind == "fill":
        with_ = draw(NUMBERS.map(abs))
        return Case(f"FILL({first.text}, {with_})", tuple(with_ if v is None else v for v in first.by_slot))
    second = draw(cases(series, depth - 1))
    pairs = list(zip(first.by_slot, second.by_slot, strict=True))
    if kind == "operator":
        sign = draw(st.sampled_from("+-*/<"))
        slots = tuple(None if a is None and b is None else _at(sign, a or 0, b or 0) for a, b in pairs)
        return Case(f"({first.text} {sign} {second.text})", slots)
    if kind == "sum":
        slots = tuple(None if a is None and b is None else (a or 0) + (b or 0) for a, b in pairs)
        return Case(f"SUM([{first.text}, {second.text}])", slots)
    test = draw(cases(series, depth - 1))
    chosen = tuple(
        None if holds is None else ((a or 0) if holds else b) for holds, (a, b) in zip(test.by_slot, pairs, strict=True)
    )
    return Case(f"IF({test.text}, {first.text}, {second.text})", chosen)


@given(st.data(), st.fixed_dictionaries(dict.fromkeys(IDS, SERIES)))
def test_every_expression_is_what_a_rule_for_single_slots_says(data: st.DataObject, series: dict[str, Series]) -> None:
    case = data.draw(cases(series))
    assert one(case.text, **series) == pytest.approx(case.by_slot, nan_ok=True)


@given(st.text(alphabet='abSUMFILL0123.,+-*/<>=&|()[]"^ ', max_size=30))
def test_no_text_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(FormulaError):
        several(text, a=(1.0,), b=(2.0,))
