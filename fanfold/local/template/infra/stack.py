"""This project's stack: Fanfold, and what else its tasks need."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import Stack
from constructs import Construct

from fanfold import project
from fanfold.cdk.config import Config
from fanfold.cdk.deployment import Fanfold

PROJECT = project.at(Path(__file__).parents[1])


class ProjectStack(Stack):
    """One deployment of this project."""

    def __init__(self, scope: Construct, name: str, *, config: Config) -> None:
        super().__init__(scope, name, termination_protection=not config.disposable)
        self.fanfold = Fanfold(self, "Default", project=PROJECT, config=config)
        # What tasks may do is granted to their class's workers, and told to them by environment variables:
        #
        #   bucket = s3.Bucket(self, "Reports")
        #   bucket.grant_read_write(self.fanfold.worker("model"))
        #   self.fanfold.worker("model").add_environment("REPORTS", bucket.bucket_name)
