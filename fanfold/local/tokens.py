"""What is done with AWS credentials instead of a token: tokens made, listed and revoked, unreadable runs removed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from fanfold.local.local_stack import LocalError, LocalStack

if TYPE_CHECKING:
    from fanfold.engine.errors import Unreadable
    from fanfold.engine.ports import Token
    from fanfold.service.wiring import Services

T = TypeVar("T")

ALL_SCOPES = frozenset({"submit", "read", "operate", "admin"})


def environment_of(
    stack_name: str | None, local_stack: LocalStack | None, environ: Mapping[str, str]
) -> dict[str, str]:
    """The environment in which a deployment's table is reached.

    A stack's name is looked up in CloudFormation with the caller's AWS credentials; without one it is
    the local stack. Raises `LocalError` when there is neither.
    """
    if stack_name is None or (local_stack is not None and stack_name == local_stack.stack):
        if local_stack is None:
            raise LocalError("Whose tokens? Name a deployed stack with --stack, or start a local one.", status=2)
        return local_stack.environment(environ)
    return {**environ, **_settings_of(stack_name)}


def _settings_of(stack_name: str) -> dict[str, str]:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    from fanfold.local.aws_access import unasked

    try:
        found = boto3.client("cloudformation").describe_stacks(StackName=stack_name)
    except BotoCoreError as error:
        raise unasked(error) from error
    except ClientError as error:
        raise LocalError(f"Stack {stack_name!r} could not be read: {error}") from error
    outputs = {o.get("OutputKey"): o.get("OutputValue", "") for o in found["Stacks"][0].get("Outputs", [])}
    if "Settings" not in outputs:
        raise LocalError(f"Stack {stack_name!r} is no Fanfold deployment: it has no output named Settings.", status=2)
    return {str(name): str(value) for name, value in json.loads(outputs["Settings"]).items()}


def create(
    environ: Mapping[str, str],
    *,
    tenant: str,
    owner: str,
    scopes: frozenset[str],
    max_lane: str | None = None,
    max_priority: int | None = None,
    expires: str | None = None,
    now: datetime,
    draw: Callable[[int], bytes],
) -> tuple[str, Token]:
    """Store a new token; gives its text, which is nowhere to be had again, and what was stored.

    `expires` is a duration from `now` on, such as `30d`; None: it never expires. Raises `LocalError` (usage) for what
    no token can have, a lane that no class has included: such a token could use nothing but last lanes.
    """
    from fanfold.engine.admission.lanes import LaneLimit
    from fanfold.engine.language.duration import parse_duration
    from fanfold.service.bearer_tokens import mint
    from fanfold.service.settings import Settings

    lanes = {lane for settings in Settings.from_env(environ).classes.values() for lane in settings.lanes}
    if max_lane is not None and max_lane not in lanes:
        raise LocalError(f"No class has a lane {max_lane!r}; there are: {', '.join(sorted(lanes))}.", status=2)
    try:
        text, token = mint(
            tenant=tenant,
            owner=owner,
            scopes=scopes,
            now=now,
            draw=draw,
            expires_at=None if expires is None else now + timedelta(seconds=parse_duration(expires)),
            bound=LaneLimit(max_lane=max_lane, max_priority=max_priority),
        )
    except ValueError as error:
        raise LocalError(f"{error}.", status=2) from error
    _run(environ, lambda services: services.tokens.put(token))
    return text, token


def list_all(environ: Mapping[str, str]) -> Sequence[Token | Unreadable]:
    """All tokens of the deployment, revoked ones too; of one that can't be read, why."""
    return _run(environ, lambda services: services.tokens.list())


def revoke(environ: Mapping[str, str], token_id: str, *, now: datetime) -> Token:
    """Mark a token revoked, by its id or its whole text; it works up to five minutes longer.

    Raises `LocalError` for an unknown id.
    """
    from fanfold.service.bearer_tokens import parse

    known = parse(token_id)
    return _run(environ, lambda services: services.tokens.revoke(token_id if known is None else known[0], now=now))


def remove_run(environ: Mapping[str, str], tenant: str, run_id: str) -> None:
    """Delete the record of a run that can't be read. Raises `LocalError` where there is none such."""
    from fanfold.engine.ports import RUN_ID, RunKey
    from fanfold.engine.tenant import TENANT

    key = RunKey(tenant=tenant, run_id=run_id)
    possible = TENANT.fullmatch(tenant) and RUN_ID.fullmatch(run_id)
    if not possible or not _run(environ, lambda services: services.runs.remove_unreadable(key)):
        raise LocalError(
            f"Tenant {tenant!r} has no run {run_id!r} whose record can't be read. One that can is ended by"
            " `fanfold cancel`.",
            status=2,
        )


def _run(environ: Mapping[str, str], use: Callable[[Services], Coroutine[Any, Any, T]]) -> T:
    """Do one thing in the deployment; the services' errors become one sentence."""
    from fanfold.engine.errors import FanfoldError, InfrastructureError
    from fanfold.local.aws_access import session_of
    from fanfold.service.aws_clients import Aws
    from fanfold.service.settings import Settings
    from fanfold.service.wiring import services

    aws = Aws(session_of(environ), endpoint_url=environ.get("AWS_ENDPOINT_URL"), threads=1)

    async def ask() -> T:
        return await use(services(Settings.from_env(environ), aws))

    try:
        return asyncio.run(ask())
    except InfrastructureError as error:
        raise LocalError(f"The table gave no answer: {error}.") from error
    except FanfoldError as error:
        raise LocalError(f"{error}.", status=2) from error
    finally:
        aws.close()
