"""The stack: the nouns put together, who may touch what, and what a deployment tells about itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.alarms import Alarms
from infra.api import Api
from infra.bundling import dependency_layer, function_code
from infra.config import BUCKET_MARGIN_DAYS, Config
from infra.dashboard import Dashboard
from infra.deadletter import TIMEOUT as DEAD_LETTER_TIMEOUT
from infra.deadletter import DeadLetter
from infra.fanout import FanOut
from infra.function import Function, Package
from infra.queues import Queues
from infra.sweeper import Sweeper
from infra.table import DUE_INDEX, LIST_INDEX, Bucket, Table
from infra.worker import Worker

READ = ("dynamodb:GetItem",)
READ_MANY = ("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query")
WRITE = ("dynamodb:PutItem", "dynamodb:UpdateItem")
SEND = ("sqs:SendMessage",)
LOOK = ("sqs:GetQueueAttributes",)
PAYLOADS = ("s3:GetObject", "s3:PutObject")
RECORDS_OF_MAPS = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["?*#*#*#*"]}}
"""Items `tenant#run#submission#step`: batches of maps never write a run's own row, `tenant#run` (R9)."""
TELL_MISSING = ("s3:ListBucket",)
"""Without it S3 answers "denied" for an object that is gone, and the code could not tell the two apart."""


class FanfoldStack(Stack):
    """One deployment of Fanfold."""

    def __init__(self, scope: Construct, name: str, *, config: Config) -> None:
        super().__init__(scope, name, description="Fanfold: durable multi-step runs without servers")
        self.config = config
        self.table = Table(self, "Runs", disposable=config.disposable, backups=not config.disposable)
        self.queues = {
            class_name: Queues(
                self,
                f"{class_name.capitalize()}Queues",
                lanes=tuple(given.lanes),
                visibility=Duration.seconds(given.timeout_seconds),
                dead_visibility=DEAD_LETTER_TIMEOUT,
            )
            for class_name, given in config.classes.items()
        }
        defaults = config.settings(table="", bucket="", queues={name: {} for name in config.classes})
        self.bucket = Bucket(
            self,
            "Payloads",
            disposable=config.disposable,
            # CDK empties a bucket by a function of its own, in Node, which an emulator need not have.
            empty_on_delete=config.disposable and not config.local,
            expire_days=defaults.max_life_days + BUCKET_MARGIN_DAYS,
        )
        # What works on batches knows no state machine: they know it, and there must be no circle.
        without_maps = config.settings(
            table=self.table.table.table_name,
            bucket=self.bucket.bucket.bucket_name,
            queues={class_name: queues.urls for class_name, queues in self.queues.items()},
        )
        package = Package(
            code=function_code(compiled=config.layer),
            layers=[dependency_layer(self, architecture=config.architecture)] if config.layer else [],
            environment=without_maps.to_env(),
            architecture=config.architecture,
            log_retention=logs.RetentionDays.ONE_MONTH,
        )
        self.fan_outs = {
            class_name: FanOut(
                self,
                f"{class_name.capitalize()}FanOut",
                config=config.classes[class_name],
                package=package,
                bucket=self.bucket.bucket,
                resume=queues.resume,
                emulated=config.local,
            )
            for class_name, queues in self.queues.items()
        }
        self.settings = config.settings(
            table=self.table.table.table_name,
            bucket=self.bucket.bucket.bucket_name,
            queues={class_name: queues.urls for class_name, queues in self.queues.items()},
            machines={class_name: each.machine.state_machine_arn for class_name, each in self.fan_outs.items()},
        )
        package = replace(package, environment=self.settings.to_env())
        self.api = Api(self, "Api", package=package)
        self.workers = {
            class_name: Worker(
                self,
                f"{class_name.capitalize()}Worker",
                config=config.classes[class_name],
                queues=queues,
                package=package,
                mappings=config.mappings,
            )
            for class_name, queues in self.queues.items()
        }
        self.dead_letter = DeadLetter(self, "DeadLetter", queues=self.queues.values(), package=package)
        self.sweeper = Sweeper(self, "Sweeper", package=package)
        self._grant()
        self.alarms = Alarms(
            self,
            "Alarms",
            functions=self.functions,
            sweeper=self.sweeper.function,
            queues=self.queues,
            config=config,
            table=self.table,
        )
        self.dashboard = Dashboard(self, "Dashboard", functions=self.functions, queues=self.queues, http=self.api.http)
        self._outputs()

    @property
    def functions(self) -> dict[str, Function]:
        """Every function by its name in the outputs: `worker-<class>` for workers, else its module's name."""
        return {
            "api": self.api.function,
            "authorizer": self.api.authorizer,
            **{f"worker-{class_name}": worker.function for class_name, worker in self.workers.items()},
            **{f"fanout-{class_name}": each.function for class_name, each in self.fan_outs.items()},
            "deadletter": self.dead_letter.function,
            "sweeper": self.sweeper.function,
        }

    @property
    def users_of_the_bucket(self) -> Sequence[Function]:
        """The functions that read and write payloads."""
        workers = [worker.function for worker in self.workers.values()]
        batches = [fan_out.function for fan_out in self.fan_outs.values()]
        return [self.api.function, *workers, *batches, self.sweeper.function]

    def _grant(self) -> None:
        """Who may do what. What a function takes from a queue, its mapping has already granted."""
        table, indexes = self.table.arn, [self.table.index_arn(LIST_INDEX), self.table.index_arn(DUE_INDEX)]
        lanes = [queue.queue_arn for queues in self.queues.values() for queue in queues.lanes.values()]
        sources = [queue.queue_arn for queues in self.queues.values() for queue in queues.sources.values()]

        api = self.api.function
        api.allow([*READ_MANY, *WRITE], table)
        api.allow(["dynamodb:Query"], self.table.index_arn(LIST_INDEX))
        api.allow([*SEND, *LOOK], *sources)
        self.api.authorizer.allow(READ, table)
        for worker in self.workers.values():
            worker.function.allow([*READ, *WRITE, "dynamodb:Query"], table)
            worker.function.allow(SEND, *sources)
        for class_name, fan_out in self.fan_outs.items():
            fan_out.function.allow(READ, table)
            fan_out.function.allow(("dynamodb:PutItem",), table, conditions=RECORDS_OF_MAPS)
            machine = fan_out.machine.state_machine_arn
            self.workers[class_name].function.allow(["states:StartExecution"], machine)
            self.workers[class_name].function.allow(
                ["states:DescribeExecution", "states:StopExecution"], fan_out.executions_arn
            )
            api.allow(["states:StopExecution"], fan_out.executions_arn)
        self.dead_letter.function.allow(READ, table)
        self.dead_letter.function.allow(SEND, *lanes)
        sweeper = self.sweeper.function
        sweeper.allow([*READ_MANY, *WRITE], table)
        sweeper.allow(["dynamodb:Query"], *indexes)
        sweeper.allow([*SEND, *LOOK], *sources)
        for function in self.users_of_the_bucket:
            function.allow(PAYLOADS, self.bucket.objects_arn)
            function.allow(TELL_MISSING, self.bucket.arn)

    def _outputs(self) -> None:
        """What `fanfold` reads. `Settings` is the functions' environment: a worker process takes the same."""
        told = {
            "ApiUrl": (self.api.url, "Base URL of the HTTP API; paths are relative to it"),
            "ApiId": (self.api.http.api_id, "Id of the HTTP API, for emulators whose host names resolve nowhere"),
            "Table": (self.settings.table, "Name of the table"),
            "Bucket": (self.settings.bucket, "Name of the bucket"),
            "Settings": (json.dumps(self.settings.to_env()), "The functions' environment, as JSON"),
            "Functions": (
                json.dumps({name: each.function.function_name for name, each in self.functions.items()}),
                "Names of the functions, as JSON",
            ),
            "LogGroups": (
                json.dumps({name: each.log_group.log_group_name for name, each in self.functions.items()}),
                "Names of the functions' log groups, as JSON",
            ),
        }
        for name, (value, description) in told.items():
            CfnOutput(self, name, value=value, description=description)
