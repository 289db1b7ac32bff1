"""The authorizer says what a token is; it never denies."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from fanfold.engine.ports import Token
from fanfold.service.api.access import Scope
from fanfold.service.bearer_tokens import SCOPES, mint
from fanfold.service.functions.authorizer import allowed, build, verdict
from tests.support.clock import START
from tests.support.http import memory_services


def a_minted_token(**given: Any) -> tuple[str, Token]:
    drawn = {8: bytes(range(8)), 32: bytes(range(32))}
    values: dict[str, Any] = {"tenant": "acme", "owner": "Ada", "scopes": frozenset({"submit", "read"})}
    return mint(now=START, draw=drawn.__getitem__, **values | given)


async def judged(authorization: str | None, token: Token, *, header: str = "authorization") -> dict[str, str]:
    """What is found out about a token, the same whichever way it is handed over."""
    tokens = memory_services().tokens
    await tokens.put(token)
    headers = {} if authorization is None else {header: authorization}
    found = await verdict({"headers": headers}, tokens, now=START + timedelta(hours=1))
    alone = {} if authorization is None else {"authorizationToken": authorization}
    assert await verdict({"type": "TOKEN", **alone}, tokens, now=START + timedelta(hours=1)) == found
    return found


async def test_a_good_token_brings_its_tenant_scopes_and_owner() -> None:
    text, token = a_minted_token()
    assert await judged(f"Bearer {text}", token) == {
        "verdict": "ok",
        "tenant": "acme",
        "scopes": "read submit",
        "owner": "Ada",
        "token": token.id,
    }
    assert (await judged(f"bearer  {text} ", token, header="Authorization"))["verdict"] == "ok"


@pytest.mark.parametrize("form", ["{0}", "Basic {0}", "Bearer", "Bearer {0}x", "Bearer ff_{1}_" + "A" * 43, "Bearer x"])
async def test_anything_else_is_unknown_and_tells_nothing(form: str) -> None:
    text, token = a_minted_token()
    assert await judged(form.format(text, token.id), token) == {"verdict": "unknown"}
    assert await judged(None, token) == {"verdict": "unknown"}


async def test_a_revoked_or_expired_token_is_called_so_only_with_the_right_secret() -> None:
    text, token = a_minted_token(expires_at=START + timedelta(minutes=59))
    assert await judged(f"Bearer {text}", token) == {"verdict": "expired"}
    assert await judged(f"Bearer {text[:-1]}A", token) == {"verdict": "unknown"}


async def test_a_revoked_token_is_revoked() -> None:
    services = memory_services()
    text, token = a_minted_token()
    await services.tokens.put(token)
    await services.tokens.revoke(token.id, now=START)
    found = await verdict({"headers": {"authorization": f"Bearer {text}"}}, services.tokens, now=START)
    assert found == {"verdict": "revoked"}


def test_it_is_called_as_lambda_calls_a_handler() -> None:
    authorize = build(memory_services())
    assert authorize({"headers": None}, None)["context"] == {"verdict": "unknown"}
    authorize.close()


def test_an_http_api_is_told_yes_and_what_was_found() -> None:
    event = {"version": "2.0", "routeArn": "arn:aws:execute-api:us-east-1:1:abc/$default/GET/v1/runs"}
    assert allowed(event, {"verdict": "unknown"}) == {"isAuthorized": True, "context": {"verdict": "unknown"}}


@pytest.mark.parametrize("context", [{"verdict": "unknown"}, {"verdict": "ok", "tenant": "acme", "token": "t1"}])
def test_a_rest_api_is_given_a_policy_for_every_route_since_it_keeps_the_answer(context: dict[str, str]) -> None:
    event = {"type": "TOKEN", "methodArn": "arn:aws:execute-api:us-east-1:1:abc/api/GET/v1/runs/x"}
    told = allowed(event, context)
    (statement,) = told["policyDocument"]["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "execute-api:Invoke")
    assert statement["Resource"] == "arn:aws:execute-api:us-east-1:1:abc/*/*"
    assert (told["context"], bool(told["principalId"])) == (context, True)


def test_the_scopes_of_tokens_are_those_the_calls_ask_for() -> None:
    assert frozenset(scope.value for scope in Scope) == SCOPES


def test_importing_it_loads_neither_pydantic_nor_powertools() -> None:
    code = (
        "import sys, functions.authorizer;"
        "print([m for m in ('pydantic', 'aws_lambda_powertools', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
