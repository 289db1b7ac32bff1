"""Worker processes on Fargate: one network and cluster, and a service for each class with `fargate`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Final

from aws_cdk import Aws, Duration, RemovalPolicy
from aws_cdk import aws_applicationautoscaling as scaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecr_assets as assets
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from fanfold.cdk.fargate import Fargate
from fanfold.cdk.function import Package
from fanfold.cdk.queues import Queues
from fanfold.service.settings import Settings

MAX_STOP_SECONDS: Final = 120
"""The longest Fargate waits between SIGTERM and SIGKILL (ECS container definition, stopTimeout)."""
LEAVE_SECONDS: Final = 20
"""Seconds that a worker needs after `drain_seconds`: 6 s to interrupt attempts, 5 s each for their remains and for
open polls, and some to exit."""
PERIOD: Final = Duration.minutes(1)
"""The period of SQS's metrics."""
LATE_PERIODS: Final = 5
"""Evaluated periods. SQS publishes a minute or two late, and a missing point reads 0. One of the last five decides."""
EMPTY_PERIODS: Final = 10
"""Minutes without work after which a class's containers are stopped."""
TAKE: Final = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility")
"""Permissions that an event source mapping grants to a function, and that a process needs itself."""
PLATFORMS: Final = {
    "arm64": (ecs.CpuArchitecture.ARM64, assets.Platform.LINUX_ARM64),
    "x86_64": (ecs.CpuArchitecture.X86_64, assets.Platform.LINUX_AMD64),
}
_ECR = re.compile(
    r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([a-z0-9._/-]+)(?::([\w.-]+)|@(sha256:.+))?"
)


class Cluster(Construct):
    """The network of the containers: two public subnets without inbound access. A NAT gateway costs $32 a month."""

    def __init__(self, scope: Construct, name: str) -> None:
        super().__init__(scope, name)
        self.network = ec2.Vpc(
            self,
            "Network",
            max_azs=2,
            nat_gateways=0,
            subnet_configuration=[ec2.SubnetConfiguration(name="Public", subnet_type=ec2.SubnetType.PUBLIC)],
            # Free, and most of the traffic.
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
                "DynamoDb": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.DYNAMODB),
            },
        )
        self.cluster = ecs.Cluster(self, "Cluster", vpc=self.network)


class FargateService(Construct):
    """The containers of one class."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        class_name: str,
        fargate: Fargate,
        settings: Settings,
        package: Package,
        queues: Queues,
        cluster: Cluster,
    ) -> None:
        super().__init__(scope, name)
        self.log_group = logs.LogGroup(
            self, "Logs", retention=package.log_retention, removal_policy=RemovalPolicy.DESTROY
        )
        self.role = iam.Role(
            self, "Role", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"), description=f"Of {name}, alone"
        )
        processor, platform = PLATFORMS[package.architecture]
        self.task = ecs.FargateTaskDefinition(
            self,
            "Task",
            cpu=fargate.cpu,
            memory_limit_mib=fargate.memory_mb,
            task_role=self.role,
            runtime_platform=ecs.RuntimePlatform(
                cpu_architecture=processor, operating_system_family=ecs.OperatingSystemFamily.LINUX
            ),
        )
        self.container = self.task.add_container(
            "Worker",
            image=self._image(fargate.image, platform, package.folder),
            # The image's entry point is `fanfold worker`.
            command=["--class", class_name, "--concurrency", str(fargate.concurrency), "--json"],
            # boto3 reads this name, unlike other SDKs.
            environment={**package.environment, "AWS_DEFAULT_REGION": Aws.REGION},
            logging=ecs.LogDrivers.aws_logs(stream_prefix=class_name, log_group=self.log_group),
            stop_timeout=Duration.seconds(stop_seconds(settings)),
            # An init process reaps the child processes for suspects, and those that tasks start.
            linux_parameters=ecs.LinuxParameters(self, "Linux", init_process_enabled=True),
        )
        self.service = ecs.FargateService(
            self,
            "Service",
            cluster=cluster.cluster,
            task_definition=self.task,
            assign_public_ip=True,  # there is no NAT gateway
            security_groups=[
                ec2.SecurityGroup(self, "Door", vpc=cluster.network, description="Nothing in, everything out")
            ],
            # A deployment starts new containers before it stops old ones. It sets no count, because scaling does.
            min_healthy_percent=100,
            max_healthy_percent=200,
            circuit_breaker=ecs.DeploymentCircuitBreaker(rollback=True),
        )
        self._cluster_name = cluster.cluster.cluster_name
        self._scale(fargate, queues)

    def allow(
        self, actions: Sequence[str], *resources: str, conditions: Mapping[str, Mapping[str, object]] | None = None
    ) -> None:
        """Let the containers do these actions on exactly these resources, under these conditions if there are any."""
        self.role.add_to_policy(
            iam.PolicyStatement(actions=list(actions), resources=list(resources), conditions=conditions)
        )

    def _image(self, name: str, platform: assets.Platform, folder: Path) -> ecs.ContainerImage:
        if not name:
            return ecs.ContainerImage.from_asset(str(folder), platform=platform)
        found = _ECR.fullmatch(name)
        if found is None:
            return ecs.ContainerImage.from_registry(name)
        account, region, repository, tag, digest = found.groups()
        named = ecr.Repository.from_repository_attributes(
            self,
            "Repository",
            repository_arn=f"arn:{Aws.PARTITION}:ecr:{region}:{account}:repository/{repository}",
            repository_name=repository,
        )
        return ecs.ContainerImage.from_ecr_repository(named, digest or tag or "latest")

    def _scale(self, fargate: Fargate, queues: Queues) -> None:
        """Scale out while messages wait; scale in to the least when there is nothing to do.

        The message of an active run stays in its queue and grows old. So an age counts only while other messages of
        the queue are visible. No container is stopped while a long step may be active.
        """
        target = scaling.ScalableTarget(
            self,
            "Target",
            service_namespace=scaling.ServiceNamespace.ECS,
            resource_id=f"service/{self._cluster_name}/{self.service.service_name}",
            scalable_dimension="ecs:service:DesiredCount",
            min_capacity=fargate.min_tasks,
            max_capacity=fargate.max_tasks,
        )
        more = scaling.StepScalingAction(
            self,
            "More",
            scaling_target=target,
            adjustment_type=scaling.AdjustmentType.CHANGE_IN_CAPACITY,
            cooldown=Duration.seconds(120),  # a container takes about a minute to start
            # The longest of the evaluated periods, because the last one may have no data yet.
            metric_aggregation_type=scaling.MetricAggregationType.MAXIMUM,
        )
        # A tenth of `max_tasks` at a time; a third if the wait is four times the threshold.
        far = 3 * fargate.scale_after_seconds
        more.add_adjustment(adjustment=max(1, fargate.max_tasks // 10), lower_bound=0, upper_bound=far)
        more.add_adjustment(adjustment=max(1, fargate.max_tasks // 3), lower_bound=far)
        self._alarm(
            "Waiting",
            _longest_wait(queues),
            more,
            threshold=fargate.scale_after_seconds,
            comparison=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            missing=cloudwatch.TreatMissingData.NOT_BREACHING,
            periods=LATE_PERIODS,
            least=1,
        )
        least = scaling.StepScalingAction(
            self, "Least", scaling_target=target, adjustment_type=scaling.AdjustmentType.EXACT_CAPACITY
        )
        least.add_adjustment(adjustment=fargate.min_tasks, upper_bound=0)
        self._alarm(
            "Empty",
            _held(queues),
            least,
            threshold=0,
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_OR_EQUAL_TO_THRESHOLD,
            missing=cloudwatch.TreatMissingData.BREACHING,  # SQS publishes nothing for a queue that is idle for hours
            periods=EMPTY_PERIODS,
        )

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.IMetric,
        action: scaling.StepScalingAction,
        *,
        threshold: float,
        comparison: cloudwatch.ComparisonOperator,
        missing: cloudwatch.TreatMissingData,
        periods: int,
        least: int | None = None,
    ) -> None:
        """An alarm that only scales. It goes off when `least` of the periods are over the threshold; default all."""
        alarm = cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            threshold=threshold,
            evaluation_periods=periods,
            datapoints_to_alarm=least or periods,
            comparison_operator=comparison,
            treat_missing_data=missing,
            alarm_description="Scales worker containers; see docs/deployment.md#functions-or-processes",
        )
        alarm.add_alarm_action(actions.ApplicationScalingAction(action))


def stop_seconds(settings: Settings) -> int:
    """Seconds that a worker has to exit after SIGTERM. Raises ValueError if Fargate does not allow so many."""
    seconds = ceil(settings.drain_seconds) + LEAVE_SECONDS
    if seconds > MAX_STOP_SECONDS:
        most = MAX_STOP_SECONDS - LEAVE_SECONDS
        raise ValueError(f"settings: drain_seconds is {settings.drain_seconds:g}; on Fargate it is at most {most}")
    return seconds


def _longest_wait(queues: Queues) -> cloudwatch.MathExpression:
    """The age in seconds of the oldest message, over queues with visible messages; 0 if there is none."""
    waits = [f"IF(FILL(waiting{n}, 0) > 0, FILL(age{n}, 0), 0)" for n in range(len(queues.sources))]
    metrics: dict[str, cloudwatch.IMetric] = {}
    for n, queue in enumerate(queues.sources.values()):
        metrics[f"waiting{n}"] = queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum")
        metrics[f"age{n}"] = queue.metric_approximate_age_of_oldest_message(period=PERIOD, statistic="Maximum")
    return cloudwatch.MathExpression(
        expression=f"MAX([{', '.join(waits)}])", label="longest wait, s", period=PERIOD, using_metrics=metrics
    )


def _held(queues: Queues) -> cloudwatch.MathExpression:
    """Visible messages and messages in flight of all queues."""
    metrics: dict[str, cloudwatch.IMetric] = {}
    for n, queue in enumerate(queues.sources.values()):
        metrics[f"waiting{n}"] = queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum")
        metrics[f"taken{n}"] = queue.metric_approximate_number_of_messages_not_visible(
            period=PERIOD, statistic="Maximum"
        )
    return cloudwatch.MathExpression(
        expression=" + ".join(f"FILL({name}, 0)" for name in metrics),
        label="messages held",
        period=PERIOD,
        using_metrics=metrics,
    )
