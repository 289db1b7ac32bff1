"""cdk-nag's AWS Solutions rules over the stack, and the findings we accept, each with its reason."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Stage, Validations
from cdk_nag import AwsSolutionsChecks
from constructs import IConstruct

from infra.stack import FanfoldStack

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
    "AwsSolutions-SF1": "Step Functions keeps every execution's history for 90 days; logging each event again would "
    "cost more than the map itself and tell nothing new (batches log what they do).",
    "AwsSolutions-SF2": "Tracing is off by default in the whole deployment: it costs cold start and money per run.",
}
"""Accepted for the state machines of maps."""
EXECUTIONS = "Executions can't be listed beforehand: the resource is this one state machine's, nothing wider."
OBJECTS = "Objects of a bucket can't be listed beforehand: the resource is this bucket's objects, nothing wider."
ONLY_DISPOSABLE = {
    "AwsSolutions-DDB3": "Point-in-time recovery is off where deleting the stack is meant to delete the data.",
}


def check(stack: FanfoldStack) -> None:
    """Have synth raise on every finding that is not accepted here."""
    app = Stage.of(stack)
    if app is None:
        raise ValueError("the stack belongs to no app")
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    accepted = {**ACCEPTED, **(ONLY_DISPOSABLE if stack.config.disposable else {})}
    _accept(stack, accepted)
    for function in stack.users_of_the_bucket:
        _accept(function, {f"AwsSolutions-IAM5[Resource::<{stack.bucket.logical_id}.Arn>/*]": OBJECTS})

    for fan_out in stack.fan_outs.values():
        _accept(fan_out, MAPS)
        _accept(fan_out.role, {f"AwsSolutions-IAM5[Resource::<{stack.bucket.logical_id}.Arn>/*]": OBJECTS})
        # CDK's own policy, which it does not attach to a role that takes none: it is not in the template.
        unattached = f'{{"Fn::Select":[6,{{"Fn::Split":[":",{{"Ref":"{fan_out.logical_id}"}}]}}]}}'
        _accept(fan_out.machine, {_executions(f"{unattached}{w}"): EXECUTIONS for w in (":*", "/*:*")})
        _accept(fan_out, {_executions(f"<{fan_out.logical_id}.Name>{w}"): EXECUTIONS for w in (":*", "/*:*")})
        for function in (stack.api.function, *(worker.function for worker in stack.workers.values())):
            _accept(function, {_executions(f"<{fan_out.logical_id}.Name>:*"): EXECUTIONS})


def _executions(which: str) -> str:
    """cdk-nag's name for the finding that these executions are a wildcard."""
    resource = f"arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:execution:{which}"
    return f"AwsSolutions-IAM5[Resource::{resource}]"


def _accept(construct: IConstruct, accepted: dict[str, str]) -> None:
    rules = [Acknowledgment(id=rule, reason=reason) for rule, reason in accepted.items()]
    Validations.of(construct).acknowledge(*rules)
