"""Worker processes on Fargate: a network and a cluster for all classes that have any, a service for each of them."""

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
"""What a worker needs beside `drain_seconds`: 6 s for what it breaks off, 5 s each for what that leaves and for its
polls, and some to end."""
PERIOD: Final = Duration.minutes(1)
"""How often SQS tells a queue's numbers."""
LATE_PERIODS: Final = 5
"""SQS tells a minute's numbers a minute or two later; until then they read as none. So one of the last five counts."""
EMPTY_PERIODS: Final = 10
"""A class has to have had nothing to do for so many minutes before its containers are stopped."""
TAKE: Final = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility")
"""What the mapping of a function grants to it, and a process needs itself."""
PLATFORMS: Final = {
    "arm64": (ecs.CpuArchitecture.ARM64, assets.Platform.LINUX_ARM64),
    "x86_64": (ecs.CpuArchitecture.X86_64, assets.Platform.LINUX_AMD64),
}
_ECR = re.compile(
    r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([a-z0-9._/-]+)(?::([\w.-]+)|@(sha256:.+))?"
)


class Cluster(Construct):
    """Where containers run: two public subnets without a way in, and no NAT gateway, which would cost $32 a month."""

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
    """The containers of one class. `allow` grants to all of them what a worker function of the class would have."""

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
            # Children that work on suspects, and what tasks start, are waited for by a process that does just that.
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
            # A deployment starts the new ones before it stops the old ones. No count of its own: scaling has set it.
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
        """More containers while somebody waits; back to the least when there is nothing to do, and not before.

        A run's message stays in its queue while the run is worked on, and grows old there: its age counts only while
        other messages of the queue wait. And no container is stopped while one may be in the middle of a long step.
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
            # Of the periods looked at: the last of them may not be known yet.
            metric_aggregation_type=scaling.MetricAggregationType.MAXIMUM,
        )
        # A tenth of the most at a time, a third when somebody waits four times as long as anybody should.
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
            missing=cloudwatch.TreatMissingData.BREACHING,  # SQS says nothing of a queue that nobody has used for hours
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
        """An alarm that tells nobody: it only scales. It goes off when `least` of the periods are so, else all."""
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
    """How long a worker may take to end after SIGTERM. Raises ValueError when that is longer than Fargate waits."""
    seconds = ceil(settings.drain_seconds) + LEAVE_SECONDS
    if seconds > MAX_STOP_SECONDS:
        most = MAX_STOP_SECONDS - LEAVE_SECONDS
        raise ValueError(f"settings: drain_seconds is {settings.drain_seconds:g}; on Fargate it is at most {most}")
    return seconds


def _longest_wait(queues: Queues) -> cloudwatch.MathExpression:
    """Seconds the oldest message is old, over the queues in which any waits; 0 if none does."""
    waits = [f"IF(FILL(waiting{n}, 0) > 0, FILL(age{n}, 0), 0)" for n in range(len(queues.sources))]
    metrics: dict[str, cloudwatch.IMetric] = {}
    for n, queue in enumerate(queues.sources.values()):
        metrics[f"waiting{n}"] = queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum")
        metrics[f"age{n}"] = queue.metric_approximate_age_of_oldest_message(period=PERIOD, statistic="Maximum")
    return cloudwatch.MathExpression(
        expression=f"MAX([{', '.join(waits)}])", label="longest wait, s", period=PERIOD, using_metrics=metrics
    )


def _held(queues: Queues) -> cloudwatch.MathExpression:
    """Messages that wait or are being worked on, in all queues together."""
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
