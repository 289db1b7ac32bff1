"""The cost of a million runs: the amount and price of each part, the date of the prices, and the cost elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from loadtest.markdown import cell

CASES = ("diamond, busy", "diamond, idle")


def cost_table(figures: Mapping[str, Any]) -> Iterator[str]:
    """What diamonds cost, part by part, as lines of Markdown; then each other way, as the sum that it is."""
    cases = [(name, figures["cases"][name]) for name in CASES if name in figures["cases"]]
    prices = figures["prices"]
    yield f"us-east-1, on demand, {figures['prices_of']}; USD per million runs = used by one × price × 1,000,000."
    yield ""
    yield "| part | price in USD | for each |" + "".join(f" {name}: used | USD |" for name, _ in cases)
    yield "| --- | --- | --- |" + " --- | --- |" * len(cases)
    for part, price in prices.items():
        if not any(part in case["used"] for _, case in cases):
            continue
        amounts = "".join(
            f" {case['used'].get(part, 0):.4g} | {case['dollars_per_million'].get(part, 0):.2f} |" for _, case in cases
        )
        dollars = f"{price['dollars']:.10f}".rstrip("0")
        yield f"| {cell(part)} | {dollars} | {cell(price['unit'])} |{amounts}"
    yield "| together | | |" + "".join(f" | **{case['total']:.2f}** |" for _, case in cases)
    yield ""
    yield "| the same diamond elsewhere | used by one | USD per million | ÷ ours, busy |"
    yield "| --- | --- | --- | --- |"
    ours = cases[0][1]
    for name, used in ours["others_used"].items():
        amounts = ", ".join(f"{amount:.4g} × {part}" for part, amount in used.items())
        total = ours["others"][name]
        yield f"| {cell(name)} | {cell(amounts)} | {total:.2f} | {total / ours['total']:.2f} |"
