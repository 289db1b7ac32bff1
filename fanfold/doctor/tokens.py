"""Tokens that should not work any more, or have worked for long."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding, Remedy
from fanfold.engine.errors import Unreadable
from fanfold.engine.ports import Token

OLD = timedelta(days=180)
"""How long a token without an end may work before it is told of."""


def find(deployment: Deployment) -> Iterator[Finding]:
    """A token that expired and was never revoked, and one that never expires and is older than half a year."""
    for token in deployment.ask(lambda services: services.tokens.list()):
        if isinstance(token, Unreadable):
            yield Finding(
                what=f"A token can't be read: {token}.",
                why="Whoever has it is answered 401 as for a token that nobody knows.",
                fix="Make a new one for its users (fanfold token create), and delete its item from the table.",
            )
            continue
        if token.revoked_at is not None:
            continue
        if token.expires_at is not None and token.expires_at <= deployment.now:
            yield Finding(
                what=f"The token {token.id} of {token.owner} (tenant {token.tenant}) expired on"
                f" {token.expires_at:%Y-%m-%d} and was not revoked.",
                why="It works no more; it only hides in the list which tokens do.",
                fix=f"fanfold token revoke {token.id}",
                remedy=Remedy(does=f"revoke the token {token.id}", apply=partial(_revoke, deployment, token)),
            )
        elif token.expires_at is None and deployment.now - token.created_at > OLD:
            yield Finding(
                what=f"The token {token.id} of {token.owner} (tenant {token.tenant}, {', '.join(sorted(token.scopes))})"
                f" never expires and is {(deployment.now - token.created_at).days} days old.",
                why="Whoever has found it in a log or a shell's history since then can use it.",
                fix=f"Make a new one (fanfold token create) for its users, then fanfold token revoke {token.id}.",
            )


def _revoke(deployment: Deployment, token: Token) -> Token:
    return deployment.ask(lambda services: services.tokens.revoke(token.id, now=deployment.now))


CHECK = Check(name="tokens", looks_at="expired and old tokens", find=find)
