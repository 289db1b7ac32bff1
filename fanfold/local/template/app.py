"""The CDK app: `npx cdk deploy -c stage=prod` deploys this project to an AWS account."""

from __future__ import annotations

from aws_cdk import App

from fanfold.cdk import context
from fanfold.cdk.config import Config
from fanfold.cdk.nag import check
from infra.stack import PROJECT, ProjectStack

app = App()
context.check(app.node.get_all_context())
config = Config.from_context(app.node.try_get_context, PROJECT)
stack = ProjectStack(app, config.stack_name, config=config)
if not config.local:
    check(stack.fanfold)
app.synth()
