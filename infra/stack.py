"""This project's stack: Fanfold, and what else the project's tasks need."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import Stack
from constructs import Construct

from fanfold import project
from fanfold.cdk.config import Config
from fanfold.cdk.deployment import Fanfold

PROJECT: Final = project.at(Path(__file__).parents[1])


class FanfoldStack(Stack):
    """One deployment of this project."""

    def __init__(self, scope: Construct, name: str, *, config: Config) -> None:
        super().__init__(
            scope,
            name,
            description="Fanfold: durable multi-step runs without servers",
            termination_protection=not config.disposable,
        )
        self.fanfold = Fanfold(self, "Default", project=PROJECT, config=config)
