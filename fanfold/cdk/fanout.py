"""Distributed maps of a class: a state machine that calls a function for each batch, then sends a wake (R9)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aws_cdk import ArnFormat, CfnElement, Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fanfold.cdk.classes import ClassConfig
from fanfold.cdk.config import MAX_EXPRESS_SECONDS
from fanfold.cdk.function import Function, Package
from fanfold.cdk.kms_key import USE, Key
from fanfold.cdk.vended import vended_log_group
from fanfold.engine.language.maps import ANSWERS, DEAD, THROTTLED
from fanfold.engine.record.run import SCHEMA

BUSY = [
    "Lambda.TooManyRequestsException",
    "Lambda.ServiceException",
    "Lambda.SdkClientException",
    "Lambda.AWSLambdaException",
]
"""Errors of calls that never reached the function, so that a repeated call costs nothing."""
DELIVER_LOGS = [
    *("logs:CreateLogDelivery", "logs:GetLogDelivery", "logs:UpdateLogDelivery", "logs:DeleteLogDelivery"),
    *("logs:ListLogDeliveries", "logs:PutResourcePolicy", "logs:DescribeResourcePolicies", "logs:DescribeLogGroups"),
]
"""What a state machine's role needs for logging. These actions support no resource ARNs."""
ENDS = ["SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"]
"""The ends of an execution. One that succeeded has sent a wake itself, but shortly before it was closed."""
MORE_THAN_ALL = 1_000_000
"""More batches than any execution has; `max_map_items` limits them."""
STANDARD_TRIES = 10
"""Tries of a throttled batch in a Standard execution, about eight minutes. Then the run starts another execution."""


class FanOut(Construct):
    """Works on the batches of maps of one class.

    `emulated` is for what every emulator takes: a fixed concurrency, batches as Standard executions, and a count where
    on AWS a percentage says that all may fail. `fair`: its wakes have a message group.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        config: ClassConfig,
        package: Package,
        bucket: s3.IBucket,
        resume: sqs.Queue,
        emulated: bool,
        fair: bool = True,
        key: Key | None = None,
    ) -> None:
        super().__init__(scope, name)
        self.function = Function(
            self,
            "Batch",
            module="fanout",
            package=package,
            timeout=Duration.seconds(config.batch_seconds),
            memory_mb=config.memory_mb,
            description="Works on a batch of a map's items",
            reserved_concurrency=config.map_concurrency,
        )
        self.role = iam.Role(
            self, "Role", assumed_by=iam.ServicePrincipal("states.amazonaws.com"), description=f"Of {name}, alone"
        )
        # Batches of up to five minutes are Express executions, whose history exists only in a log.
        self.log_group = None if emulated else vended_log_group(self, "Logs", of="states", package=package)
        self.machine = sfn.StateMachine(
            self,
            "Maps",
            logs=None
            if self.log_group is None
            else sfn.LogOptions(
                destination=self.log_group,
                level=sfn.LogLevel.ERROR,
                # Names of runs and steps, and why a batch failed; no payload goes through a state machine.
                include_execution_data=True,
            ),
            comment="Calls the function for each batch of a map, then sends a wake for the run",
            # CDK's own grant would cover every version of the function; the permission is below.
            role=self.role.without_policy_updates(),
            definition_body=sfn.DefinitionBody.from_chainable(
                self._batches(bucket, config, emulated=emulated).next(self._send_wake(resume, fair=fair))
            ),
        )
        self._allow(["lambda:InvokeFunction"], self.function.live.function_arn)
        self._allow(["s3:GetObject"], bucket.arn_for_objects("*"))
        if self.log_group is not None:
            self._allow(DELIVER_LOGS, "*")
        self._allow(["sqs:SendMessage"], resume.queue_arn)
        if key is not None:
            self.role.add_to_policy(
                iam.PolicyStatement(actions=list(USE), resources=[key.arn], conditions=dict(key.through))
            )
        # A Distributed Map starts executions of its own state machine. This needs a policy of its own, because the
        # state machine depends on the role's default policy.
        own = iam.Policy(self, "OwnExecutions", roles=[self.role])
        own.add_statements(
            _statement(["states:StartExecution"], self.machine.state_machine_arn),
            _statement(
                ["states:DescribeExecution", "states:StopExecution"], self.executions_arn, self._executions("/*:*")
            ),
        )
        self.rule = events.Rule(
            self,
            "Broken",
            description="Sends a wake for the run of a map whose execution has ended",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={"stateMachineArn": [self.machine.state_machine_arn], "status": ENDS},
            ),
            targets=[targets.SqsQueue(resume, message=events.RuleTargetInput.from_event_path("$.detail"))],
        )

    @property
    def executions_arn(self) -> str:
        """The ARN of the state machine's executions, without those of its batches."""
        return self._executions(":*")

    def _executions(self, which: str) -> str:
        return Stack.of(self).format_arn(
            service="states",
            resource="execution",
            resource_name=f"{self.machine.state_machine_name}{which}",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )

    @property
    def logical_id(self) -> str:
        """The state machine's name in the template."""
        element = self.machine.node.default_child
        if not isinstance(element, CfnElement):
            raise TypeError("the state machine has no template element")
        return Stack.of(self).get_logical_id(element)

    def _batches(self, bucket: s3.IBucket, config: ClassConfig, *, emulated: bool) -> sfn.DistributedMap:
        """A Distributed Map over the list of batches in S3. It tolerates every failure: the engine judges by items."""
        short = config.batch_seconds <= MAX_EXPRESS_SECONDS
        # LocalStack has no Express children, and accepts a percentage only as a fraction, which CDK can't write.
        kind = sfn.StateMachineType.EXPRESS if short and not emulated else sfn.StateMachineType.STANDARD
        batches = sfn.DistributedMap(
            self,
            "Batches",
            comment="Each batch in the list that the run's worker wrote to S3",
            item_reader=sfn.S3JsonItemReader(bucket=bucket, key=sfn.JsonPath.string_at("$.batches")),
            item_selector={
                "tenant": sfn.JsonPath.string_at("$.tenant"),
                "run": sfn.JsonPath.string_at("$.run"),
                "submission": sfn.JsonPath.string_at("$.submission"),
                "step": sfn.JsonPath.string_at("$.step"),
                "try": sfn.JsonPath.number_at("$.try"),
                "batch": sfn.JsonPath.object_at("$$.Map.Item.Value"),
            },
            max_concurrency=config.emulated_batches if emulated else None,
            max_concurrency_path=None if emulated else "$.batches_at_once",
            tolerated_failure_percentage=None if emulated else 100,
            tolerated_failure_count=MORE_THAN_ALL if emulated else None,
            map_execution_type=kind,
            # One word for each batch. The output of the execution tells whether a batch never began.
            result_path=f"$.{ANSWERS}",
        )
        # The retries of a throttled batch and its work must fit into the duration of its execution.
        spare = MAX_EXPRESS_SECONDS - config.batch_seconds
        tries = int(math.log2(spare + 1)) if short else STANDARD_TRIES
        return batches.item_processor(self._work(tries), mode=sfn.ProcessorMode.DISTRIBUTED, execution_type=_mode(kind))

    def _work(self, tries: int) -> sfn.Chain:
        """One batch. If its function died, one item may be the cause: after a second try each item is called alone.

        A batch that is throttled in so many `tries` (the delays begin at a second and double) never began, and its
        answer says so. The run tries it again later.
        """
        work = self._invoke("Work on a batch", tries)
        work.add_retry(errors=["States.ALL"], interval=Duration.seconds(1), backoff_rate=2, max_attempts=1)
        # Nothing began, and further calls would also be throttled.
        work.add_catch(self._answer("Never begun", THROTTLED), errors=BUSY)
        work.add_catch(self._apart(tries), errors=["States.ALL"], result_path=sfn.JsonPath.DISCARD)
        return sfn.Chain.start(work)

    def _answer(self, name: str, word: str) -> sfn.Pass:
        return sfn.Pass(self, name, result=sfn.Result.from_string(word))

    def _apart(self, tries: int) -> sfn.Chain:
        """Call the function for each item of a batch alone, as a batch of one.

        As many calls run concurrently as the batch has items. An item that kills its function leaves no record and so
        fails alone. The answer has one word for each item.
        """
        same = {
            "tenant": sfn.JsonPath.string_at("$.tenant"),
            "run": sfn.JsonPath.string_at("$.run"),
            "submission": sfn.JsonPath.string_at("$.submission"),
            "step": sfn.JsonPath.string_at("$.step"),
            "try": sfn.JsonPath.number_at("$.try"),
        }
        # As text: CDK has no nested intrinsic functions.
        last = "States.MathAdd($.batch.to, -1)"
        indexes = f"States.ArrayRange($.batch.from, {last}, 1)"
        batch = {
            "from": sfn.JsonPath.number_at("$$.Map.Item.Value"),
            "to.$": "States.MathAdd($$.Map.Item.Value, 1)",
        }
        items = sfn.Map(
            self,
            "Items",
            comment="Each item of the batch by itself",
            items_path="$.indexes",
            item_selector={**same, "batch": batch},
        )
        alone = self._invoke("Work on an item", tries)
        alone.add_catch(self._answer("Item never begun", THROTTLED), errors=BUSY)
        alone.add_catch(self._answer("Given up", DEAD), errors=["States.ALL"])
        items.item_processor(alone)
        return sfn.Pass(self, "Apart", parameters={**same, "indexes.$": indexes}).next(items)

    def _invoke(self, name: str, tries: int) -> tasks.LambdaInvoke:
        """A call of the function, repeated while it is throttled."""
        call = tasks.LambdaInvoke(
            self,
            name,
            lambda_function=self.function.live,
            # Only one word, because the answers of all batches together must stay below 256 KB.
            payload_response_only=True,
            retry_on_service_exceptions=False,
        )
        if tries:
            call.add_retry(
                errors=BUSY,
                interval=Duration.seconds(1),
                backoff_rate=2,
                max_attempts=tries,
                max_delay=Duration.seconds(60),
                jitter_strategy=sfn.JitterType.FULL,
            )
        return call

    def _send_wake(self, resume: sqs.Queue, *, fair: bool) -> tasks.SqsSendMessage:
        """A wake, as `fanfold.adapters.message_codec` reads it."""
        return tasks.SqsSendMessage(
            self,
            "SendWake",
            queue=resume,
            message_group_id=sfn.JsonPath.string_at("$.group") if fair else None,
            message_body=sfn.TaskInput.from_object(
                {
                    "z": SCHEMA,
                    "k": "wake",
                    "tenant": sfn.JsonPath.string_at("$.tenant"),
                    "run": sfn.JsonPath.string_at("$.run"),
                    "submission": sfn.JsonPath.string_at("$.submission"),
                    "class": sfn.JsonPath.string_at("$.class"),
                    "map": sfn.JsonPath.string_at("$.step"),
                    "outages": 0,
                }
            ),
            result_path=sfn.JsonPath.DISCARD,
        )

    def _allow(self, actions: Sequence[str], *resources: str) -> None:
        self.role.add_to_policy(_statement(actions, *resources))


def _statement(actions: Sequence[str], *resources: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=list(actions), resources=list(resources))


def _mode(kind: sfn.StateMachineType) -> sfn.ProcessorType:
    return sfn.ProcessorType.EXPRESS if kind is sfn.StateMachineType.EXPRESS else sfn.ProcessorType.STANDARD
