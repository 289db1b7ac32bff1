"""cdk-nag's AWS Solutions rules over the stack, and the findings we accept, each with its reason."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Stack, Stage, Validations
from cdk_nag import AwsSolutionsChecks
from constructs import IConstruct

from fanfold.cdk.deployment import Fanfold

ACCEPTED = {
    "AwsSolutions-S1": "Access to payloads goes through functions that log it; server access logs would cost a "
    "second bucket and a line per object read.",
    "AwsSolutions-APIG4": "Health, OpenAPI and docs are public on purpose and hold nothing of a tenant; a stream "
    "checks the signed ticket in its address; every other route has the authorizer (a template test lists the open "
    "ones).",
    "AwsSolutions-L1": "Python 3.13 is the version the locked wheels and byte code of the layer are made for; it is "
    "raised together with them.",
}
"""Accepted in the whole stack: rule to reason."""
MAPS = {
    "AwsSolutions-SF1": "What fails is logged, at level ERROR, with its reason. Logging every event, as the rule "
    "wants, would cost more than the map itself: batches that succeed leave their results in the table.",
    "AwsSolutions-SF2": "Tracing is off by default in the whole deployment: it costs cold start and money per run.",
}
"""Accepted for the state machines of maps."""
REST = {
    "AwsSolutions-APIG2": "The handler checks every body and parameter itself and reports all errors at once, as a "
    "problem with pointers; API Gateway's validation would answer before it with less.",
    "AwsSolutions-APIG3": "A firewall is the account's choice and cost; the stage is throttled, and every route but "
    "the open ones needs a token.",
    "AwsSolutions-APIG6": "Execution logs would hold bodies and tokens; each request leaves a line in the access log.",
    "AwsSolutions-COG4": "Tokens are the deployment's own, checked by a Lambda authorizer; there are no user pools.",
    "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/"
    "AmazonAPIGatewayPushToCloudWatchLogs]": "The role by which API Gateway writes logs is one per account and region, "
    "and this is AWS's own policy for it.",
}
"""Accepted for the REST API flavour."""
POOLS = {
    "AwsSolutions-VPC7": "Nothing can reach into this network, and what goes out are workers' calls, which they log.",
    "AwsSolutions-ECS2": "The environment holds names of the stack's own resources and numbers, no secret.",
    "AwsSolutions-ECS4": "Container insights cost more than the numbers of a class's queues, which say how it does.",
}
"""Accepted for worker containers."""
PULL = {
    "AwsSolutions-IAM5[Resource::*]": "The one action that takes no resource: to ask the image registry for a token.",
}
"""Accepted for the role that pulls a worker's image."""
EXECUTIONS = "Executions can't be listed beforehand: the resource is this one state machine's, nothing wider."
OBJECTS = "Objects of a bucket can't be listed beforehand: the resource is this bucket's objects, nothing wider."
DELIVERIES = "The eight actions by which a state machine logs know no resources (Step Functions, CloudWatch Logs)."
TRACES = {
    "AwsSolutions-IAM5[Resource::*]": "X-Ray's two actions of writing know no resources; only where tracing is on.",
}
ONLY_DISPOSABLE = {
    "AwsSolutions-DDB3": "Point-in-time recovery is off where deleting the stack is meant to delete the data.",
}


def check(fanfold: Fanfold) -> None:
    """Have the synth of the app around a deployment raise on every finding that is not accepted here."""
    app = Stage.of(fanfold)
    if app is None:
        raise ValueError("the deployment belongs to no app")
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    accepted = {**ACCEPTED, **(ONLY_DISPOSABLE if fanfold.config.disposable else {})}
    _accept(Stack.of(fanfold), accepted)
    if fanfold.config.api == "rest":
        _accept(fanfold.api, REST)
    if fanfold.pools:
        _accept(fanfold, POOLS)
    for pool in fanfold.pools.values():
        _accept(pool.task, PULL)
    if fanfold.config.tracing:
        for traced in fanfold.functions.values():
            _accept(traced, TRACES)
    for function in fanfold.users_of_the_bucket:
        _accept(function, {f"AwsSolutions-IAM5[Resource::<{fanfold.bucket.logical_id}.Arn>/*]": OBJECTS})

    for fan_out in fanfold.fan_outs.values():
        _accept(fan_out, MAPS)
        _accept(fan_out.role, {f"AwsSolutions-IAM5[Resource::<{fanfold.bucket.logical_id}.Arn>/*]": OBJECTS})
        _accept(fan_out.role, {"AwsSolutions-IAM5[Resource::*]": DELIVERIES})
        # CDK's own policy, which it does not attach to a role that takes none: it is not in the template.
        unattached = f'{{"Fn::Select":[6,{{"Fn::Split":[":",{{"Ref":"{fan_out.logical_id}"}}]}}]}}'
        _accept(fan_out.machine, {_executions(f"{unattached}{w}"): EXECUTIONS for w in (":*", "/*:*")})
        _accept(fan_out, {_executions(f"<{fan_out.logical_id}.Name>{w}"): EXECUTIONS for w in (":*", "/*:*")})
        for starter in (fanfold.api.function, *fanfold.takers.values()):
            _accept(starter, {_executions(f"<{fan_out.logical_id}.Name>:*"): EXECUTIONS})


def _executions(which: str) -> str:
    """cdk-nag's name for the finding that these executions are a wildcard."""
    resource = f"arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:execution:{which}"
    return f"AwsSolutions-IAM5[Resource::{resource}]"


def _accept(construct: IConstruct, accepted: dict[str, str]) -> None:
    rules = [Acknowledgment(id=rule, reason=reason) for rule, reason in accepted.items()]
    Validations.of(construct).acknowledge(*rules)
