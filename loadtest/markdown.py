"""Text as Markdown."""

from __future__ import annotations


def cell(value: object) -> str:
    """Text that ends no cell of a table."""
    return str(value).replace("|", "\\|").replace("\n", " ")
