"""The CDK composition root: configuration from context, one stack, synth. Makes no AWS call and no git call."""

from __future__ import annotations

from aws_cdk import App

from fanfold.cdk import context
from fanfold.cdk.config import Config
from fanfold.cdk.nag import check
from infra.stack import PROJECT, FanfoldStack


def main() -> None:
    """Synthesise the stack the context describes (`docs/deployment.md` lists the context keys)."""
    app = App()
    context.check(app.node.get_all_context())
    config = Config.from_context(app.node.try_get_context, PROJECT)
    stack = FanfoldStack(app, config.stack_name, config=config)
    if not config.local:
        # An emulator has neither auditors nor attackers, and everybody there waits for the synth.
        check(stack.fanfold)
    app.synth()


if __name__ == "__main__":
    main()
