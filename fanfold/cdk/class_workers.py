"""What a project gives the workers of a class: rights, environment variables, secrets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import jsii
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from fanfold.service.task_secrets import PREFIX as SECRET

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
"""What an environment variable of a function may be called (Lambda's CreateFunction)."""
_TAKEN: Final = ("AWS_", "FANFOLD_", "LAMBDA_")


@jsii.implements(iam.IGrantable)
class ClassWorkers(Construct):
    """Whatever runs tasks of one class: its function, the function of its maps' batches, its containers.

    Grant to it as to any grantable: `bucket.grant_read(fanfold.worker("model"))`.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        roles: Sequence[iam.IRole],
        functions: Sequence[lambda_.Function],
        containers: Sequence[ecs.ContainerDefinition],
    ) -> None:
        super().__init__(scope, name)
        self._roles = roles
        self._functions = functions
        self._containers = containers
        self._policy: iam.ManagedPolicy | None = None

    @property
    @jsii.member(jsii_name="grantPrincipal")
    def grant_principal(self) -> iam.IPrincipal:
        """Who gets what is granted: one policy, which all of them have."""
        if self._policy is None:
            self._policy = iam.ManagedPolicy(self, "Policy", description="What this project's tasks may do")
            for role in self._roles:
                self._policy.attach_to_role(role)
        return self._policy.grant_principal

    def add_environment(self, name: str, value: str) -> None:
        """Have tasks find a value in this environment variable; it shows in the template. Raises ValueError."""
        if not _NAME.fullmatch(name) or name.upper().startswith(_TAKEN):
            raise ValueError(f"environment: {name!r} is no name of a variable of tasks")
        self._set(name, value)

    def add_secret(self, name: str, secret: secretsmanager.ISecret | ssm.IStringParameter) -> None:
        """Have tasks find a secret in this environment variable, and let them read it.

        Only its address is in the template: a process looks the value up as it starts, and keeps it. Raises ValueError.
        """
        if not _NAME.fullmatch(name) or name.upper().startswith(_TAKEN):
            raise ValueError(f"environment: {name!r} is no name of a variable of tasks")
        secret.grant_read(self)
        arn = getattr(secret, "secret_arn", None)
        self._set(SECRET + name, f"secret:{arn}" if arn else f"parameter:{getattr(secret, 'parameter_name', '')}")

    def _set(self, name: str, value: str) -> None:
        for function in self._functions:
            function.add_environment(name, value)
        for container in self._containers:
            container.add_environment(name, value)
