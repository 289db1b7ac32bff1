"""Token texts: what is minted is read back, and nothing else passes."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanfold.adapters.aws.tokens import DynamoTokens
from fanfold.engine.ports import Token
from fanfold.service.bearer_tokens import SCOPES, matches, mint, parse
from tests.support.builders import a_token

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def minted(*, tenant: str = "acme", scopes: frozenset[str] = SCOPES) -> tuple[str, Token]:
    return mint(tenant=tenant, owner="me", scopes=scopes, now=NOW, draw=secrets.token_bytes)


def test_a_minted_token_is_read_back_and_matches_its_secret_alone() -> None:
    text, token = minted()
    other, _ = minted()
    read = parse(text)
    assert read is not None
    token_id, secret = read
    assert (token_id, len(token_id), len(secret)) == (token.id, 16, 43)
    assert matches(token, secret)
    assert not matches(token, other.rpartition("_")[2])
    assert not matches(token, secret[:-1])


def test_the_secret_is_not_stored() -> None:
    text, token = minted()
    assert text[20:] not in repr(token)


@pytest.mark.parametrize(
    "text",
    ["", "ff_", "ff_0123456789abcdef_short", "xx_0123456789abcdef_" + "a" * 43, "ff_0123456789ABCDEF_" + "a" * 43,
     "ff_0123456789abcdef_" + "a" * 43 + "\n", "ff_0123456789abcdef_" + "é" * 43, " ff_0123456789abcdef_" + "a" * 43],
)  # fmt: skip
def test_anything_else_is_no_token(text: str) -> None:
    assert parse(text) is None


def test_secrets_may_hold_underscores() -> None:
    text = "ff_0123456789abcdef_" + "_-" * 21 + "_"
    assert parse(text) == ("0123456789abcdef", "_-" * 21 + "_")


@pytest.mark.parametrize("scopes", [frozenset[str](), frozenset({"read", "everything"})])
def test_a_token_for_nothing_or_for_the_unknown_is_refused(scopes: frozenset[str]) -> None:
    with pytest.raises(ValueError, match="scopes"):
        minted(scopes=scopes)


def test_a_token_without_a_tenant_is_refused() -> None:
    with pytest.raises(ValueError, match="tenant"):
        minted(tenant="")


@pytest.mark.parametrize("expires_at", [None, NOW])
async def test_a_token_that_expires_is_deleted_a_month_later(expires_at: datetime | None) -> None:
    stored: list[dict[str, Any]] = []

    async def call(client: object, operation: str, **given: Any) -> dict[str, Any]:
        stored.append(given["Item"])
        return {}

    await DynamoTokens(call, "table").put(a_token(expires_at=expires_at))
    tenant, token = stored
    assert "x" not in tenant  # it is swept as long as there are runs of it
    deleted_at = int((NOW + timedelta(days=30)).timestamp())
    assert token.get("x") == (None if expires_at is None else {"N": str(deleted_at)})
