"""The context keys. Any other key is refused, because a typing error must not deploy `dev`."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

KEYS: Final = frozenset(
    {
        *("stage", "stack", "settings", "classes", "alarm_email", "bedrock_models", "api", "requests_per_second"),
        *("kms", "table", "reserved", "tracing", "mappings", "architecture", "local", "layer", "ledger"),
    }
)
"""Every key of ours; docs/deployment.md says what each means."""
OF_CDK: Final = frozenset({"cli-telemetry", "acknowledged-issue-numbers", "tree", "analytics"})
"""CDK's own plain keys; its other keys contain an `@` or a `:` (feature flags, `aws:cdk:…`, look-ups)."""


def check(keys: Iterable[str]) -> None:
    """Raises ValueError naming the first key that is neither ours nor CDK's, with a similar key."""
    for key in sorted(keys):
        if key in KEYS or key in OF_CDK or "@" in key or ":" in key:
            continue
        meant = get_close_matches(key, KEYS, n=1, cutoff=0.5)
        hint = f"did you mean {meant[0]!r}?" if meant else f"known are {', '.join(sorted(KEYS))}"
        raise ValueError(f"context: unknown key {key!r}; {hint}")
