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


def _accept(construct: IConstruct, accepted: dict[str, str]) -> None:
    rules = [Acknowledgment(id=rule, reason=reason) for rule, reason in accepted.items()]
    Validations.of(construct).acknowledge(*rules)
