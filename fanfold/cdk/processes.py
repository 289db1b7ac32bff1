"""Permissions of worker processes that somebody else runs: a managed policy for each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import aws_iam as iam
from constructs import Construct


class Processes(Construct):
    """The policy of a class's worker processes: the permissions of a worker function, and to receive messages."""

    def __init__(self, scope: Construct, name: str, *, class_name: str) -> None:
        super().__init__(scope, name)
        self.policy = iam.ManagedPolicy(self, "Policy", description=f"Fanfold: worker processes of class {class_name}")

    def allow(
        self, actions: Sequence[str], *resources: str, conditions: Mapping[str, Mapping[str, object]] | None = None
    ) -> None:
        """Let the processes do these actions on exactly these resources, under these conditions if there are any."""
        self.policy.add_statements(
            iam.PolicyStatement(actions=list(actions), resources=list(resources), conditions=conditions)
        )
