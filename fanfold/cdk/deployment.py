"""A deployment: its constructs, their permissions, and its outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from aws_cdk import Annotations, ArnFormat, CfnOutput, Duration, Stack, Tags
from aws_cdk import aws_logs as logs
from constructs import Construct

from fanfold.cdk.alarms import Alarms
from fanfold.cdk.api import Api
from fanfold.cdk.bedrock import ASK, arn_of
from fanfold.cdk.bundling import dependency_layer, function_code
from fanfold.cdk.class_workers import ClassWorkers
from fanfold.cdk.config import Config
from fanfold.cdk.dashboard.page import Dashboard
from fanfold.cdk.deadletter import TIMEOUT as DEAD_LETTER_TIMEOUT
from fanfold.cdk.deadletter import DeadLetter
from fanfold.cdk.environment_size import check as check_environment
from fanfold.cdk.fanout import FanOut
from fanfold.cdk.fargate_service import TAKE, Cluster, FargateService
from fanfold.cdk.function import Function, Package
from fanfold.cdk.kms_key import USE, Key
from fanfold.cdk.processes import Processes
from fanfold.cdk.queues import Queues
from fanfold.cdk.sweeper import Sweeper
from fanfold.cdk.table import DUE_INDEX, LIST_INDEX, Bucket, Table
from fanfold.cdk.worker import Worker
from fanfold.engine.rules.engine_limits import KEPT_FOR
from fanfold.project import Project
from fanfold.service.addresses import Addresses

READ = ("dynamodb:GetItem",)
READ_MANY = ("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query")
WRITE = ("dynamodb:PutItem", "dynamodb:UpdateItem")
SEND = ("sqs:SendMessage",)
LOOK = ("sqs:GetQueueAttributes",)
PAYLOADS = ("s3:GetObject", "s3:PutObject")
RECORDS_OF_MAPS = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["?*#*#*#*"]}}
"""Items `tenant#run#submission#step`: batches of maps never write a run's own record, `tenant#run` (R9)."""
SEATS_AND_SECRETS = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["#seats#*", "#secrets"]}}
"""Items that the watch function writes: seats of waiting calls, and the signing key of tickets."""
LOG_RETENTION = {True: logs.RetentionDays.ONE_WEEK, False: logs.RetentionDays.THREE_MONTHS}
"""By whether the data is disposable. Step Functions also keeps executions for three months."""
TELL_MISSING = ("s3:ListBucket",)
"""Without this permission S3 answers "denied" for a missing object."""


class Fanfold(Construct):
    """One deployment of a project: API, queues, workers, table, alarms and dashboard.

    Name it `Default` in its stack: then it adds nothing to the names of resources, which must fit into the functions'
    environment (4 KB). Raises ValueError for what AWS would refuse, `NotImportable` for code that lacks a package.
    """

    def __init__(self, scope: Construct, name: str, *, project: Project, config: Config) -> None:
        super().__init__(scope, name)
        check_environment(config, prefix="" if name == "Default" else name)
        self.config = config
        self.project = project
        self._class_workers: dict[str, ClassWorkers] = {}
        self._mark()
        self.key = Key(self, "Key", given=config.kms, disposable=config.disposable) if config.kms else None
        key = self.key.key if self.key else None
        self.table = Table(
            self,
            "Runs",
            disposable=config.disposable,
            backups=not config.disposable,
            key=key,
            restored=config.table,
        )
        self.queues = {
            class_name: Queues(
                self,
                f"{class_name.capitalize()}Queues",
                lanes=tuple(given.lanes),
                visibility=Duration.seconds(given.timeout_seconds),
                dead_visibility=DEAD_LETTER_TIMEOUT,
                key=key,
            )
            for class_name, given in config.classes.items()
        }
        self.bucket = Bucket(
            self,
            "Payloads",
            disposable=config.disposable,
            # CDK empties a bucket by a function of its own, in Node, which an emulator need not have.
            empty_on_delete=config.disposable and not config.local,
            expire_days=KEPT_FOR.days,
            key=key,
        )
        # The functions of batches do not know the state machines: that would be a circular dependency.
        without_maps = config.settings(
            table=self.table.table.table_name,
            bucket=self.bucket.bucket.bucket_name,
            queues={class_name: queues.urls for class_name, queues in self.queues.items()},
        )
        package = Package(
            folder=project.folder,
            code=function_code(project, compiled=config.layer),
            layers=[dependency_layer(self, project, architecture=config.architecture)] if config.layer else [],
            environment=without_maps.to_env(brief=True, addresses=self._addresses({})),
            architecture=config.architecture,
            log_retention=LOG_RETENTION[config.disposable],
            tracing=config.tracing,
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
                fair=config.fair_queues,
                key=self.key,
            )
            for class_name, queues in self.queues.items()
        }
        self.settings = config.settings(
            table=self.table.table.table_name,
            bucket=self.bucket.bucket.bucket_name,
            queues={class_name: queues.urls for class_name, queues in self.queues.items()},
            machines={class_name: each.machine.state_machine_arn for class_name, each in self.fan_outs.items()},
        )
        # Lanes, queues and state machines by their names: see `fanfold.cdk.environment_size`.
        self.variables = self.settings.to_env(brief=True, addresses=self._addresses(self.fan_outs))
        package = replace(package, environment=self.variables)
        self.api = Api(self, "Api", config=config, package=package)
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
            if config.classes[class_name].pool == "lambda"
        }
        self.pools = self._pools(package)
        self.processes = {
            class_name: Processes(self, f"{class_name.capitalize()}Processes", class_name=class_name)
            for class_name, given in config.classes.items()
            if given.pool == "process" and class_name not in self.pools and not config.local
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
            gateway=self.api.gateway,
        )
        self.dashboard = Dashboard(
            self, "Dashboard", functions=self.functions, queues=self.queues, gateway=self.api.gateway, config=config
        )
        self._outputs()

    def worker(self, class_name: str) -> ClassWorkers:
        """The workers of a class, for further permissions and secrets. Raises ValueError for an unknown class."""
        if class_name not in self.config.classes:
            known = ", ".join(self.config.classes)
            raise ValueError(f"there is no class {class_name!r}; there are: {known}")
        if class_name not in self._class_workers:
            functions = [self.fan_outs[class_name].function]
            if class_name in self.workers:
                functions.append(self.workers[class_name].function)
            pools = [self.pools[class_name]] if class_name in self.pools else []
            self._class_workers[class_name] = ClassWorkers(
                self,
                f"{class_name.capitalize()}Tasks",
                roles=[*(each.role for each in functions), *(pool.role for pool in pools)],
                functions=[each.function for each in functions],
                containers=[pool.container for pool in pools],
            )
        return self._class_workers[class_name]

    def _addresses(self, fan_outs: Mapping[str, FanOut]) -> Addresses:
        """The names of the queues, and of the state machines of these."""
        return Addresses(
            queues_at=next(iter(self.queues.values())).at,
            machines_at=Stack.of(self).format_arn(
                service="states", resource="stateMachine", resource_name="", arn_format=ArnFormat.COLON_RESOURCE_NAME
            ),
            queues={class_name: queues.names for class_name, queues in self.queues.items()},
            machines={class_name: each.machine.state_machine_name for class_name, each in fan_outs.items()},
        )

    def _mark(self) -> None:
        """Add tags and warnings."""
        Tags.of(self).add("service", "fanfold")
        Tags.of(self).add("stage", self.config.stage)
        if not self.config.disposable and not self.config.alarm_email:
            Annotations.of(self).add_warning_v2(
                "fanfold:alarms-reach-nobody",
                f"Stage {self.config.stage} without -c alarm_email=…: nobody has subscribed to the topic of its "
                "alarms. Subscribe to it; `fanfold doctor` reports a topic without subscribers.",
            )
        if not self.config.disposable and not self.config.reserved:
            Annotations.of(self).add_warning_v2(
                "fanfold:callers-have-no-room-of-their-own",
                f"Stage {self.config.stage} without -c reserved=…: workers and maps may take all of the account's "
                "concurrency, and then callers get 503. See docs/deployment.md#lambda-concurrency.",
            )

    def _pools(self, package: Package) -> dict[str, FargateService]:
        """The containers of the classes that ask for them; an emulator has none."""
        asked = {name: given.fargate for name, given in self.config.classes.items() if given.fargate is not None}
        if not asked or self.config.local:
            return {}
        cluster = Cluster(self, "Pools")
        return {
            class_name: FargateService(
                self,
                f"{class_name.capitalize()}Pool",
                class_name=class_name,
                fargate=fargate,
                settings=self.settings,
                package=package,
                queues=self.queues[class_name],
                cluster=cluster,
            )
            for class_name, fargate in asked.items()
        }

    @property
    def takers(self) -> Mapping[str, Function | FargateService | Processes]:
        """The workers of each class: a function, containers, or processes that somebody else runs."""
        functions = {name: worker.function for name, worker in self.workers.items()}
        takers: dict[str, Function | FargateService | Processes] = {**functions, **self.pools, **self.processes}
        return takers

    @property
    def functions(self) -> dict[str, Function]:
        """Every function by its name in the outputs: `worker-<class>` for workers, else its module's name."""
        return {
            "api": self.api.function,
            "watch": self.api.watch,
            "authorizer": self.api.authorizer,
            **{f"worker-{class_name}": worker.function for class_name, worker in self.workers.items()},
            **{f"fanout-{class_name}": each.function for class_name, each in self.fan_outs.items()},
            "deadletter": self.dead_letter.function,
            "sweeper": self.sweeper.function,
        }

    @property
    def users_of_the_bucket(self) -> Sequence[Function | FargateService | Processes]:
        """Everything that reads and writes payloads."""
        batches = [fan_out.function for fan_out in self.fan_outs.values()]
        return [self.api.function, self.api.watch, *self.takers.values(), *batches, self.sweeper.function]

    def _grant(self) -> None:
        """Grant permissions. Event source mappings have already granted access to their queues."""
        table, indexes = self.table.arn, [self.table.index_arn(LIST_INDEX), self.table.index_arn(DUE_INDEX)]
        lanes = [queue.queue_arn for queues in self.queues.values() for queue in queues.lanes.values()]
        sources = [queue.queue_arn for queues in self.queues.values() for queue in queues.sources.values()]

        api = self.api.function
        api.allow([*READ_MANY, *WRITE], table)
        api.allow(["dynamodb:Query"], self.table.index_arn(LIST_INDEX))
        api.allow([*SEND, *LOOK], *sources)
        watch = self.api.watch
        watch.allow([*READ, "dynamodb:Query"], table)
        watch.allow(("dynamodb:PutItem", "dynamodb:UpdateItem"), table, conditions=SEATS_AND_SECRETS)
        self.api.authorizer.allow(READ, table)
        for taker in self.takers.values():
            taker.allow([*READ, *WRITE, "dynamodb:Query"], table)
            taker.allow(SEND, *sources)
        processes: dict[str, FargateService | Processes] = {**self.pools, **self.processes}
        for class_name, pool in processes.items():
            pool.allow(TAKE, *(queue.queue_arn for queue in self.queues[class_name].sources.values()))
        for class_name, fan_out in self.fan_outs.items():
            fan_out.function.allow(READ, table)
            fan_out.function.allow(("dynamodb:PutItem",), table, conditions=RECORDS_OF_MAPS)
            machine = fan_out.machine.state_machine_arn
            if starter := self.takers.get(class_name):
                starter.allow(["states:StartExecution"], machine)
                starter.allow(["states:DescribeExecution", "states:StopExecution"], fan_out.executions_arn)
            api.allow(["states:StopExecution"], fan_out.executions_arn)
        if self.config.bedrock_models:
            models = [
                arn_of(name, partition=Stack.of(self).partition, region=Stack.of(self).region)
                for name in self.config.bedrock_models
            ]
            for tasks in (*self.takers.values(), *(each.function for each in self.fan_outs.values())):
                tasks.allow(ASK, *models)
        self.dead_letter.function.allow(READ, table)
        self.dead_letter.function.allow(SEND, *lanes)
        sweeper = self.sweeper.function
        sweeper.allow([*READ_MANY, *WRITE], table)
        sweeper.allow(["dynamodb:Query"], *indexes)
        sweeper.allow([*SEND, *LOOK], *sources)
        if self.key:
            users: list[Function | FargateService | Processes] = [*self.functions.values()]
            users += [*self.pools.values(), *self.processes.values()]
            for user in users:
                user.allow(USE, self.key.arn, conditions=self.key.through)
        for each in self.users_of_the_bucket:
            each.allow(PAYLOADS, self.bucket.objects_arn)
            if each is not api:  # the API stores values and presigns URLs, and reads none
                each.allow(TELL_MISSING, self.bucket.arn)

    def _outputs(self) -> None:
        """Outputs for the command line. `Settings` is the environment of functions and of worker processes."""
        told = {
            "ApiUrl": (self.api.url, "Base URL of the API; paths are relative to it"),
            "ApiId": (self.api.gateway.api_id, "Id of the API, for emulators whose host names resolve nowhere"),
            "Table": (self.settings.table, "Name of the table"),
            "Bucket": (self.settings.bucket, "Name of the bucket"),
            "Settings": (json.dumps(self.variables), "The functions' environment, as JSON"),
            "Functions": (
                json.dumps({name: each.function.function_name for name, each in self.functions.items()}),
                "Names of the functions, as JSON",
            ),
            "LogGroups": (
                json.dumps({name: each.log_group.log_group_name for name, each in self.functions.items()}),
                "Names of the functions' log groups, as JSON",
            ),
        }
        if self.processes:
            policies = {name: each.policy.managed_policy_arn for name, each in self.processes.items()}
            told["WorkerPolicies"] = (json.dumps(policies), "Policies for the roles of worker processes, as JSON")
        for name, (value, description) in told.items():
            CfnOutput(Stack.of(self), name, value=value, description=description)
