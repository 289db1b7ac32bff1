"""A function's environment, which has a limit that only a deployment would meet: its values are known that late."""

from __future__ import annotations

from functions.engine.message import DEAD, RESUME
from infra.config import Config

MAX_BYTES = 4_096
"""Names and values of all environment variables of a function together (Lambda quotas)."""
TOKEN = "x" * 12
"""As long as what CloudFormation appends to a name it makes up; an account's number is as long."""
REGION = "ap-southeast-1"
"""A long one."""


def check(config: Config) -> None:
    """Raises ValueError where the classes, with their queues' names, would not fit into a function's environment."""
    size = environment_bytes(config)
    if size > MAX_BYTES:
        raise ValueError(
            f"classes: a function's environment would have about {size:,} bytes, the most is {MAX_BYTES:,}"
        )


def environment_bytes(config: Config) -> int:
    """About how much of its environment a function of this deployment fills, in bytes."""
    settings = config.settings(
        table=_named(config, "Runs"),
        bucket=_named(config, "Payloads"),
        queues={
            name: {
                role: f"https://sqs.{REGION}.amazonaws.com/{TOKEN}/{_named(config, f'{name}Queues{role}Lane')}"
                for role in (*given.lanes, RESUME, DEAD)
            }
            for name, given in config.classes.items()
        },
        machines={
            name: f"arn:aws:states:{REGION}:{TOKEN}:stateMachine:{_named(config, f'{name}FanOutMaps')}"
            for name in config.classes
        },
    )
    return sum(len(name) + len(value) for name, value in settings.to_env(brief=True).items())


def _named(config: Config, what: str) -> str:
    """A name as CloudFormation makes it: the stack's, the resource's with CDK's hash, and something random."""
    return f"{config.stack_name}-{what}{'x' * 8}-{TOKEN}"
