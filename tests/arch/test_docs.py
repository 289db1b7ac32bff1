"""What docs/ says of rules, settings and metrics is what the code has."""

from __future__ import annotations

import re
import subprocess
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import pytest

from fanfold.service.settings import ClassSettings, Settings
from fanfold.service.telemetry.metrics import Metric

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RULE = re.compile(r"\bR(\d{1,2})\b")
SECTION = re.compile(r"^## (R\d+) .*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def rows(page: str, header: str) -> dict[str, list[str]]:
    """The rows of all tables of a page whose header begins so, by their first cell."""
    found: dict[str, list[str]] = {}
    inside = False
    for line in (DOCS / page).read_text().splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith(header):
            inside = True
        elif inside and not line.startswith("| ---"):
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            assert name.strip("`") not in found, f"{name} has two rows"
            found[name.strip("`")] = cells
    return found


def files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.toml"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.split()]


def rules() -> dict[str, str]:
    return {match[1]: match[0] for match in SECTION.finditer((DOCS / "protocol.md").read_text())}


def test_every_rule_that_is_mentioned_is_in_the_protocol() -> None:
    known = rules()
    assert list(known) == [f"R{number}" for number in range(1, 18)]
    unknown = {
        f"{path.relative_to(ROOT)}: R{number}"
        for path in files()
        if path.exists() and "results" not in path.parts
        for number in RULE.findall(path.read_text(encoding="utf-8"))
        if f"R{number}" not in known
    }
    assert unknown == set()


@pytest.mark.parametrize("rule", [f"R{number}" for number in range(1, 18)])
def test_every_rule_names_tests_that_exist(rule: str) -> None:
    (held_up_by,) = re.findall(r"^Held up by: (.*)$", rules()[rule], re.MULTILINE)
    named = re.findall(r"`(tests/[\w/]+\.py)`", held_up_by)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def told(field: Field[Any]) -> str:
    """A default as a page writes it."""
    value = field.default if field.default is not MISSING else field.default_factory()  # type: ignore[misc]
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return f"{value:,}"
    if isinstance(value, str):
        return f"`{value}`" if value else ""
    return ", ".join(f"`{name}`" for name in value)


@pytest.mark.parametrize(
    ("header", "kind"), [("| setting | default ", Settings), ("| field of a class | default ", ClassSettings)]
)
def test_every_setting_has_its_row_with_its_default(header: str, kind: type[Any]) -> None:
    assert {name: cells[0] for name, cells in rows("settings.md", header).items()} == {
        field.name: told(field) for field in fields(kind)
    }


def test_every_metric_has_its_row_with_its_unit_and_dimensions() -> None:
    assert {name: cells[:2] for name, cells in rows("metrics.md", "| metric | unit ").items()} == {
        str(metric): [str(metric.unit), ", ".join(metric.dimension_names[1:])] for metric in Metric
    }


def test_the_glossary_is_in_order_and_has_each_word_once() -> None:
    words = list(rows("glossary.md", "| word | meaning "))
    assert words == sorted(words)


def anchors(page: Path) -> set[str]:
    """The anchors of a page: those that GitHub makes of its headings, and ids of its own."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return set(re.findall(r'id="([^"]+)"', text)) | {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def test_every_heading_that_a_page_links_to_exists() -> None:
    links = [
        (page, page if not target else (page.parent / target).resolve(), anchor)
        for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")]
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8"))
    ]
    assert links
    broken = {f"{page.name}: {target.name}#{anchor}" for page, target, anchor in links if anchor not in anchors(target)}
    assert broken == set()


def test_every_heading_that_code_names_exists() -> None:
    # A link may name several: `docs/operations.md#sweeper-silent and #oldest-message`. Alarms, and the doctor's check
    # of throttled calls, have the heading in a `section` of the operators' page.
    link = re.compile(r"docs/(\w+\.md)((?:[ \w,]*#[a-z][a-z-]*)+)")
    section = re.compile(r'\bsection ?= ?"([a-z-]+)"(?: if "[^"]*" in \w+ else "([a-z-]+)")?')
    named = set()
    for path in files():
        if path.suffix != ".md" and path.exists() and "tests" not in path.parts:
            text = path.read_text(encoding="utf-8")
            named |= {
                (page, anchor) for page, found in link.findall(text) for anchor in re.findall(r"#([a-z-]+)", found)
            }
            named |= {("operations.md", anchor) for found in section.findall(text) for anchor in found if anchor}
    assert {"table-throttles", "throttled-functions", "oldest-message"} < {anchor for _, anchor in named}
    assert {f"{page}#{anchor}" for page, anchor in named if anchor not in anchors(DOCS / page)} == set()


def test_every_page_that_a_page_links_to_exists() -> None:
    broken = {
        f"{page.name}: {target}"
        for page in [ROOT / "README.md", *DOCS.rglob("*.md")]
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
        if not (page.parent / target).exists()
    }
    assert broken == set()
