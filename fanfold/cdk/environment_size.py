"""The size of a function's environment. Its values are known only in the deployment, so the synth estimates them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from fanfold.cdk.config import Config
from fanfold.engine.record.messages import DEAD, RESUME
from fanfold.service.addresses import Addresses

MAX_BYTES: Final = 4_096
"""A function's environment as Lambda counts it (Lambda quotas): a JSON object, every quote in a value escaped."""
TOKEN: Final = "x" * 12
"""As long as the suffix that CloudFormation appends to names, and as an account's number."""
HASH: Final = "x" * 8
"""As long as the hash that CDK appends to a logical id."""
REGION: Final = "ap-southeast-1"
"""The region with the longest name."""


def check(config: Config, *, prefix: str = "") -> None:
    """Raises ValueError where the classes, with their queues' names, would not fit into a function's environment."""
    size = counted(environment(config, prefix=prefix))
    if size > MAX_BYTES:
        raise ValueError(
            f"classes: a function's environment would have about {size:,} bytes, the most is {MAX_BYTES:,}: take fewer "
            "classes or lanes, or shorter names"
        )


def counted(variables: Mapping[str, str]) -> int:
    """The bytes of an environment as Lambda counts them."""
    return len(json.dumps(dict(variables)).encode())


def environment(config: Config, *, prefix: str = "") -> dict[str, str]:
    """An environment as long as that of a function of this deployment in the region with the longest name.

    `prefix` is the id of the deployment's construct, which is part of the name of each of its resources.
    """
    addresses = Addresses(
        queues_at=f"https://sqs.{REGION}.amazonaws.com/{TOKEN}/",
        machines_at=f"arn:aws:states:{REGION}:{TOKEN}:stateMachine:",
        queues={
            name: {
                role: _named(config, f"{prefix}{name}Queues{queue}")
                for role, queue in _queues(tuple(given.lanes)).items()
            }
            for name, given in config.classes.items()
        },
        machines={name: f"{prefix}{name}FanOutMaps{HASH}-{TOKEN}" for name in config.classes},
    )
    settings = config.settings(
        table=_named(config, f"{prefix}RunsTable"),
        # A bucket's name has the stack's in small letters, and a random part as long as others.
        bucket=_named(config, f"{prefix}PayloadsBucket"),
        queues={name: {} for name in config.classes},
    )
    return settings.to_env(brief=True, addresses=addresses)


def _queues(lanes: tuple[str, ...]) -> dict[str, str]:
    return {**{lane: f"{lane}Lane" for lane in lanes}, RESUME: RESUME, DEAD: DEAD}


def _named(config: Config, what: str) -> str:
    """A name as CloudFormation makes it: the stack's, the resource's with CDK's hash, and something random."""
    return f"{config.stack_name}-{what}{HASH}-{TOKEN}"
