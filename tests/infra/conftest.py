"""Templates, made once per session: starting CDK takes seconds, and nothing here changes a template."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App
from aws_cdk.assertions import Template

from fanfold.cdk.config import Config
from fanfold.cdk.nag import check
from infra.stack import PROJECT, FanfoldStack

Json = dict[str, Any]
CONTEXT = json.loads((Path(__file__).parents[2] / "cdk.json").read_text())["context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesised:
    """A stack's template and what it was made from."""

    config: Config
    template: Json

    def all(self, kind: str) -> dict[str, Json]:
        """The properties of every resource of a type, by logical id."""
        found = {k: v for k, v in self.template["Resources"].items() if v["Type"] == kind}
        return {name: resource.get("Properties", {}) for name, resource in found.items()}

    def functions(self) -> dict[str, Json]:
        """Our own functions by module, without what CDK adds (which has no handler of ours)."""
        ours = {k: v for k, v in self.all("AWS::Lambda::Function").items() if v["Handler"].startswith("functions.")}
        return {each["Handler"].split(".")[1]: each for each in ours.values()}

    def called(self, target: Any) -> str:
        """The logical id of the function that a reference to its alias calls; an error for one to `$LATEST`."""
        (name,) = mentioned(target)
        alias = self.all("AWS::Lambda::Alias")[name]
        version = self.all("AWS::Lambda::Version")[alias["FunctionVersion"]["Fn::GetAtt"][0]]
        assert alias["FunctionName"] == version["FunctionName"]
        return str(alias["FunctionName"]["Ref"])

    def text(self, value: Any) -> str:
        """A value with its references replaced: `Ref` by the logical id, `GetAtt` by `id.attribute`.

        A queue's URL and its name are both its logical id.
        """
        match value:
            case str():
                return value
            case {"Ref": str(name)}:
                return name
            case {"Fn::GetAtt": [name, "QueueName"]}:
                return name
            case {"Fn::Join": ["/", [{"Fn::Select": _}, *_]]}:
                return ""  # what the URLs of all queues begin with
            case {"Fn::GetAtt": [name, attribute]}:
                return f"{name}.{attribute}"
            case {"Fn::Join": [between, parts]}:
                return str(between).join(self.text(part) for part in parts)
            case _:
                raise AssertionError(f"no text: {value}")


def synthesise(context: Mapping[str, Any], *, nag: bool = False) -> Synthesised:
    """The stack for a context: nothing is bundled; with `nag` the rules run and their findings raise."""
    app = App(
        context={**CONTEXT, "aws:cdk:bundling-stacks": [], **context},
        # Takes ten seconds, and `cdk synth` does it anyway.
        builtin_cloud_formation_validation=False,
    )
    config = Config.from_context(app.node.try_get_context, PROJECT)
    stack = FanfoldStack(app, config.stack_name, config=config)
    if nag:
        check(stack.fanfold)
        app.synth()
    return Synthesised(config=config, template=dict(Template.from_stack(stack).to_json()))


def mentioned(value: Any) -> Iterator[str]:
    """The logical ids that a part of a template refers to."""
    match value:
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), *_]}:
            yield name
        case dict():
            for each in value.values():
                yield from mentioned(each)
        case list():
            for each in value:
                yield from mentioned(each)


@pytest.fixture(scope="session")
def synth() -> Callable[..., Synthesised]:
    return synthesise


ONE_CLASS = '{"model": {"concurrency": 100}}'
"""Most promises are about one class: with one, each kind of resource is there once."""


@pytest.fixture(scope="session")
def shipped() -> Synthesised:
    """What goes to a real account for keeps, with the classes of `pyproject.toml`; the rules have passed it."""
    return synthesise({"stage": "prod"}, nag=True)


@pytest.fixture(scope="session")
def prod() -> Synthesised:
    """The same with one class."""
    return synthesise({"stage": "prod", "alarm_email": "ops@example.org", "classes": ONE_CLASS})


@pytest.fixture(scope="session")
def local() -> Synthesised:
    """What goes into an emulator."""
    given = {"local": "true", "ledger": "/somewhere/ledger.jsonl", "settings": '{"max_queue_depth": 7}'}
    return synthesise({**given, "classes": ONE_CLASS})
