"""A deployment as the doctor sees it: its stack's resources and outputs, its settings, and clients."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from fanfold.doctor.census import Census, take
from fanfold.doctor.resource import Resource, ends
from fanfold.engine.record.messages import DEAD
from fanfold.local.aws_access import session_of, stack_of, unasked
from fanfold.local.local_stack import LocalError, LocalStack
from fanfold.service.aws_clients import Aws
from fanfold.service.settings import Settings
from fanfold.service.wiring import Services, services

T = TypeVar("T")

WHOLE = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE"})
"""The states of a complete stack. In other states it is incomplete or changing."""
CHANGING = frozenset({"UPDATE_IN_PROGRESS", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "UPDATE_ROLLBACK_IN_PROGRESS"})

LIVE = "live"
"""The alias that callers use. The doctor checks the version that runs, not `$LATEST`."""
CONNECT_SECONDS = 3
READ_SECONDS = 20
"""Timeout in seconds: a person waits, and an emulator may be busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue of the deployment, by its role, with its attributes as SQS has them."""

    class_name: str
    role: str
    url: str
    attributes: Mapping[str, str] = field(compare=False)

    def __str__(self) -> str:
        return f"{self.class_name}/{self.role}"

    @property
    def arn(self) -> str:
        """Its ARN."""
        return self.attributes["QueueArn"]


def unqualified(arn: str) -> str:
    """A function's ARN without the version or alias that it may end in."""
    return ":".join(arn.split(":")[:7])


def _name_of(function: str) -> str:
    """A function's name, of its ARN or of itself."""
    return unqualified(function).rpartition(":")[2]


class Deployment:
    """One deployed stack. It reads everything from AWS once. `close` it at the end.

    `now` is the time of the examination; `wall` is this machine's clock (seconds since the epoch).
    """

    def __init__(
        self,
        stack_name: str,
        session: boto3.Session,
        *,
        now: datetime,
        endpoint_url: str | None = None,
        local_stack: LocalStack | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.stack_name = stack_name
        self.now = now
        self.emulated = endpoint_url is not None
        self._session = session
        self._endpoint_url = endpoint_url
        self._local_stack = local_stack
        self._clients: dict[str, Any] = {}
        self._aws = Aws(session, endpoint_url=endpoint_url, threads=16, wall=wall)

    @classmethod
    def of(
        cls, stack_name: str | None, local_stack: LocalStack | None, environ: Mapping[str, str], *, now: datetime
    ) -> Deployment:
        """The stack of that name, `local` or None for the local one.

        The caller's AWS credentials and `AWS_ENDPOINT_URL` hold; the local stack has its own. Raises `LocalError`
        (usage) when there is no local one.
        """
        name, own, chosen = stack_of(stack_name, local_stack, environ, what="deployment")
        endpoint = own.get("AWS_ENDPOINT_URL") or None
        return cls(name, session_of(own), now=now, endpoint_url=endpoint, local_stack=chosen)

    def close(self) -> None:
        """Close every connection."""
        self._aws.close()
        for client in self._clients.values():
            client.close()

    def client(self, service: str) -> Any:
        """A client of an AWS service, made at its first use and kept."""
        if service not in self._clients:
            config = Config(
                connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, retries={"total_max_attempts": 3}
            )
            make: Any = self._session.client
            self._clients[service] = make(service, endpoint_url=self._endpoint_url, config=config)
        return self._clients[service]

    def ask(self, use: Callable[[Services], Coroutine[Any, Any, T]]) -> T:
        """Run a function with the deployment's own ports."""
        return asyncio.run(use(self.services))

    # --- the stack ------------------------------------------------------------------------------

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """The stack's outputs. Raises `LocalError`, one sentence, where there is no whole deployment of that name."""
        try:
            found = self.client("cloudformation").describe_stacks(StackName=self.stack_name)["Stacks"][0]
        except (NoCredentialsError, NoRegionError) as error:
            raise unasked(error) from error
        except ClientError as error:
            told = error.response.get("Error", {})
            if told.get("Code") == "ValidationError":
                raise LocalError(f"There is no stack {self.stack_name!r} in this account and region.") from error
            raise LocalError(f"Stack {self.stack_name!r} could not be read: {told.get('Message') or error}.") from error
        except BotoCoreError as error:
            raise LocalError(f"Stack {self.stack_name!r} could not be read: {error}.") from error
        outputs = {str(o["OutputKey"]): str(o.get("OutputValue", "")) for o in found.get("Outputs", ())}
        status = found["StackStatus"]
        if status not in WHOLE | CHANGING:
            raise LocalError(f"Stack {self.stack_name!r} is {status}, no whole deployment: deploy or delete it first.")
        if missing := [name for name in ("Settings", "Functions", "Table", "ApiUrl") if name not in outputs]:
            raise LocalError(
                f"Stack {self.stack_name!r} is no Fanfold deployment: it has no output named {missing[0]}.", status=2
            )
        return outputs

    @cached_property
    def resources(self) -> tuple[Resource, ...]:
        """The stack's resources, with what its template says of each."""
        cloudformation = self.client("cloudformation")
        body = cloudformation.get_template(StackName=self.stack_name)["TemplateBody"]
        template = json.loads(body) if isinstance(body, str) else body
        pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=self.stack_name)
        return tuple(
            Resource(
                logical_id=each["LogicalResourceId"],
                kind=each["ResourceType"],
                physical_id=each.get("PhysicalResourceId", ""),
                properties=template["Resources"].get(each["LogicalResourceId"], {}).get("Properties", {}),
            )
            for page in pages
            for each in page["StackResourceSummaries"]
        )

    def all(self, kind: str) -> list[Resource]:
        """The stack's resources of a CloudFormation type."""
        return [resource for resource in self.resources if resource.kind == kind]

    @property
    def api_url(self) -> str:
        """The API's base URL."""
        return self.outputs["ApiUrl"] if self._local_stack is None else self._local_stack.api_url

    # --- what it is made of ---------------------------------------------------------------------

    @cached_property
    def settings(self) -> Settings:
        """The settings of its processes. Raises `LocalError` if this version can't read them."""
        try:
            return Settings.from_env(json.loads(self.outputs["Settings"]))
        except (ValueError, AttributeError) as error:
            raise LocalError(
                f"Stack {self.stack_name!r} has settings that this version can't read; use the one it was deployed by:"
                f" {error}."
            ) from error

    @cached_property
    def services(self) -> Services:
        """Its ports."""
        return services(self.settings, self._aws)

    @property
    def kept(self) -> bool:
        """Whether its data outlives the stack: in every stage but dev."""
        return self.settings.stage != "dev"

    @cached_property
    def functions(self) -> Mapping[str, Mapping[str, Any]]:
        """The configuration of each function, by its name in the outputs."""
        names = json.loads(self.outputs["Functions"])
        ask = self.client("lambda").get_function_configuration
        return {name: ask(FunctionName=physical, Qualifier=LIVE) for name, physical in names.items()}

    @cached_property
    def queues(self) -> tuple[Queue, ...]:
        """Every queue of every class."""
        ask = self.client("sqs").get_queue_attributes
        return tuple(
            Queue(
                class_name=class_name,
                role=role,
                url=url,
                attributes=ask(QueueUrl=url, AttributeNames=["All"])["Attributes"],
            )
            for class_name, given in self.settings.classes.items()
            for role, url in given.queues.items()
        )

    @property
    def sources(self) -> list[Queue]:
        """The queues that workers take from: lanes and `resume`."""
        return [queue for queue in self.queues if queue.role != DEAD]

    @property
    def dead(self) -> Mapping[str, Queue]:
        """Each class's dead-letter queue."""
        return {queue.class_name: queue for queue in self.queues if queue.role == DEAD}

    @cached_property
    def mappings(self) -> tuple[tuple[Resource, Mapping[str, Any]], ...]:
        """The event source mappings of the stack that there are, as the template and as Lambda have them."""
        return tuple((each, told) for each, told in self._asked_mappings if told is not None)

    @cached_property
    def lost_mappings(self) -> tuple[Resource, ...]:
        """The event source mappings of the template that somebody deleted, and nobody made again."""
        return tuple(each for each, told in self._asked_mappings if told is None)

    @cached_property
    def _asked_mappings(self) -> tuple[tuple[Resource, Mapping[str, Any] | None], ...]:
        return tuple((each, self.mapping(each)) for each in self.all("AWS::Lambda::EventSourceMapping"))

    def mapping(self, resource: Resource) -> Mapping[str, Any] | None:
        """The mapping as Lambda has it now; one that was made again by hand counts. None: there is none."""
        client = self.client("lambda")
        try:
            told: Mapping[str, Any] = client.get_event_source_mapping(UUID=resource.physical_id)
            if told["State"] != "Deleting":
                return told
        except client.exceptions.ResourceNotFoundException:
            pass
        ends = self.ends_of(resource)
        if ends is None:
            return None
        queue, function = ends
        found = client.list_event_source_mappings(EventSourceArn=queue.arn)["EventSourceMappings"]
        there = (each for each in found if each["State"] != "Deleting")
        return next((each for each in there if _name_of(each["FunctionArn"]) == _name_of(function)), None)

    def ends_of(self, resource: Resource) -> tuple[Queue, str] | None:
        """The queue of a mapping, and its function as Lambda takes it; None where its template has not both of ours."""
        source, function = ends(resource, self.resources)
        queue = next((each for each in self.queues if each.url == source), None)
        return None if queue is None or function is None else (queue, function)

    @cached_property
    def census(self) -> Census:
        """The active runs and the counters of slots around them."""
        return self.ask(lambda services: take(services, now=self.now))
