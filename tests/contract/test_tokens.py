"""What every store of tokens promises."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fanfold.engine.errors import Conflict, NotFound
from fanfold.engine.ports import Tokens
from tests.contract.backends import Backend
from tests.support.builders import a_token
from tests.support.clock import START

LATER = START + timedelta(hours=1)


@pytest.fixture
def tokens(backend: Backend) -> Tokens:
    return backend.tokens()


@pytest.mark.parametrize(
    "token",
    [
        a_token(),
        a_token(scopes=frozenset({"read"}), expires_at=LATER, revoked_at=LATER, owner="Zoë"),
        a_token(scopes=frozenset()),
    ],
    ids=["usual", "ended", "may do nothing"],
)
async def test_a_token_reads_back(tokens: Tokens, token: object) -> None:
    await tokens.put(token)  # type: ignore[arg-type]  # the parameters are tokens
    assert await tokens.get(a_token().id) == token


async def test_an_unknown_token_is_none(tokens: Tokens) -> None:
    await tokens.put(a_token())
    assert await tokens.get("nobody") is None


async def test_an_id_is_given_once(tokens: Tokens) -> None:
    await tokens.put(a_token())
    with pytest.raises(Conflict):
        await tokens.put(a_token(owner="Eve"))
    assert await tokens.get(a_token().id) == a_token()


async def test_all_tokens_are_listed(tokens: Tokens) -> None:
    everyone = [a_token(1), a_token(2, tenant="other"), a_token(3, revoked_at=LATER)]
    for token in everyone:
        await tokens.put(token)
    assert sorted(await tokens.list(), key=lambda t: t.id) == everyone


async def test_revoking_is_recorded_once(tokens: Tokens) -> None:
    await tokens.put(a_token())
    revoked = replace(a_token(), revoked_at=LATER)
    assert await tokens.revoke(a_token().id, now=LATER) == revoked
    assert await tokens.revoke(a_token().id, now=LATER + timedelta(days=1)) == revoked
    assert await tokens.get(a_token().id) == revoked


async def test_revoking_an_unknown_token_is_an_error(tokens: Tokens) -> None:
    with pytest.raises(NotFound):
        await tokens.revoke("nobody", now=LATER)
    assert await tokens.list() == []


async def test_every_tenant_that_ever_had_a_token_is_known(tokens: Tokens) -> None:
    assert set(await tokens.tenants()) == set()
    for token in (a_token(1), a_token(2), a_token(3, tenant="other")):
        await tokens.put(token)
    await tokens.revoke(a_token(3).id, now=LATER)
    assert set(await tokens.tenants()) == {"acme", "other"}
