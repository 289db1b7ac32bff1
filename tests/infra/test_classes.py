"""Classes: the ones that ship, one more in a few lines, and what would not work refused by name."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fanfold.cdk.classes import LOCAL_CONCURRENCY, MAPPING_CONCURRENCY, ClassConfig, classes_of
from fanfold.cdk.config import Config
from fanfold.cdk.environment_size import REGION, TOKEN, check, counted
from fanfold.cdk.environment_size import environment as longest
from fanfold.service.settings import ClassSettings, Settings
from infra.stack import PROJECT
from tests.infra.conftest import Synthesised

DEPLOYMENT = Path(__file__).parents[2] / "docs" / "deployment.md"


def told(text: str) -> Mapping[str, Any]:
    """The classes that a project's file with this text says."""
    classes: Mapping[str, Any] = tomllib.loads(text)["tool"]["fanfold"]["classes"]
    return classes


def configured(classes: Mapping[str, Any] | None, **context: Any) -> Config:
    given = {**context, **({} if classes is None else {"classes": classes})}
    return Config.from_context(given.get, PROJECT)


def settings_of(config: Config) -> Mapping[str, ClassSettings]:
    return config.settings(table="t", bucket="b", queues={name: {} for name in config.classes}).classes


def environment(stack: Synthesised, function: Mapping[str, Any]) -> dict[str, str]:
    return {name: stack.text(value) for name, value in function["Environment"]["Variables"].items()}


def workers(stack: Synthesised) -> dict[str, dict[str, Any]]:
    found = stack.all("AWS::Lambda::Function").items()
    return {name: each for name, each in found if each["Handler"].startswith("functions.worker.")}


def test_model_and_harness_are_deployed_with_three_lanes_each(shipped: Synthesised) -> None:
    (worker, _) = workers(shipped).values()
    classes = Settings.from_env(environment(shipped, worker)).classes

    assert {name: given.lanes for name, given in classes.items()} == dict.fromkeys(
        ("model", "harness"), ("high", "normal", "low")
    )
    queues = [url for given in classes.values() for url in given.queues.values()]
    assert set(queues) == set(shipped.all("AWS::SQS::Queue"))
    assert len(queues) == 2 * 5


def test_each_class_has_a_function_that_takes_from_its_own_queues_alone(shipped: Synthesised) -> None:
    (first, _) = workers(shipped).values()
    queues = {
        url: name
        for name, given in Settings.from_env(environment(shipped, first)).classes.items()
        for role, url in given.queues.items()
        if role != "dead"
    }
    takes: dict[str, set[str]] = {}
    for mapping in shipped.all("AWS::Lambda::EventSourceMapping").values():
        source, function = mapping["EventSourceArn"]["Fn::GetAtt"][0], shipped.called(mapping["FunctionName"])
        if source in queues:
            takes.setdefault(function, set()).add(queues[source])
    assert takes.keys() == workers(shipped).keys()
    assert sorted(map(sorted, takes.values())) == [["harness"], ["model"]]


def test_a_harness_run_has_its_sandbox_to_itself() -> None:
    assert configured(None).classes["harness"].batch_size == 1


def deployed_environment(stack: Synthesised, function: Mapping[str, Any]) -> dict[str, str]:
    """A function's environment with the names and the region that CloudFormation will put in, the longest there are."""
    kinds = {name: resource["Type"] for name, resource in stack.template["Resources"].items()}

    def named(logical_id: str) -> str:
        of_stack = "" if kinds[logical_id] == "AWS::StepFunctions::StateMachine" else f"{stack.config.stack_name}-"
        return f"{of_stack}{logical_id}-{TOKEN}"

    def text(value: Any) -> str:
        match value:
            case str():
                return value
            case {"Ref": "AWS::Region"}:
                return REGION
            case {"Ref": "AWS::AccountId"}:
                return TOKEN
            case {"Ref": "AWS::Partition"}:
                return "aws"
            case {"Ref": name} | {"Fn::GetAtt": [name, "QueueName" | "Name"]}:
                return named(name)
            case {"Fn::Join": ["/", [{"Fn::Select": _}, *_]]}:
                return f"https://sqs.{REGION}.amazonaws.com/{TOKEN}/"
            case {"Fn::Join": [between, parts]}:
                return str(between).join(text(part) for part in parts)
        raise AssertionError(value)

    return {name: text(value) for name, value in function["Environment"]["Variables"].items()}


ELEVEN = {name: {} for name in ("model", "harness", "nightly", "reports", "batch", "eu", "us", "slow", "gpu", "a", "b")}


def test_eleven_classes_fit_into_a_functions_environment_as_lambda_counts_it(
    synth: Callable[..., Synthesised], shipped: Synthesised
) -> None:
    assert counted(longest(configured(ELEVEN, stage="prod"))) <= 4_096
    # A stack has at most 500 resources: of so many classes they have to have fewer lanes.
    many = synth({"stage": "prod", "classes": {name: {"lanes": ["fast", "slow"]} for name in ELEVEN}})
    for stack, classes in ((shipped, 2), (many, 11)):
        for function in stack.functions().values():
            told = deployed_environment(stack, function)
            assert len(Settings.from_env(told).classes) == classes
            # Every quote in a value counts twice.
            size = len(json.dumps(told))
            assert size <= 4_096
            # What is counted at synth is no less, and not much more.
            assert 0 <= counted(longest(stack.config)) - size < 600


def test_more_classes_than_a_functions_environment_holds_are_refused_at_synth() -> None:
    check(configured(ELEVEN, stage="prod"))
    with pytest.raises(ValueError, match=r"environment would have about .* bytes, the most is 4,096"):
        check(configured({f"class{number}": {} for number in range(13)}, stage="prod"))


def test_the_example_in_the_documentation_is_a_class_more(synth: Callable[..., Synthesised]) -> None:
    examples = re.findall(r"```toml\n(.*?)```", DEPLOYMENT.read_text(encoding="utf-8"), re.DOTALL)
    base = PROJECT.classes
    for example in examples:
        assert configured({**base, **told(example)}).classes.keys() >= base.keys()
    added = told(examples[0])
    given = {**base, **added}
    stack = synth({"stage": "dev", "classes": given})
    (function, *_) = workers(stack).values()

    assert set(added) < set(given)
    assert Settings.from_env(environment(stack, function)).classes.keys() == given.keys()
    assert len(stack.all("AWS::SQS::Queue")) == sum(len(c.lanes) + 2 for c in stack.config.classes.values())


def test_a_class_of_processes_has_queues_and_no_function_and_may_take_long_steps(
    synth: Callable[..., Synthesised],
) -> None:
    stack = synth({"local": "true", "classes": {"model": {}, "harness": {"pool": "process"}}})
    (worker,) = workers(stack).values()
    classes = Settings.from_env(environment(stack, worker)).classes

    assert (classes["model"].max_step_seconds, classes["harness"].max_step_seconds) == (840, 86_400)
    assert len(classes["harness"].queues) == 5
    assert len(stack.all("AWS::StepFunctions::StateMachine")) == 2


def test_a_step_may_be_as_long_as_its_class_says() -> None:
    classes = configured({"a": {"timeout_seconds": 600}, "b": {"pool": "process", "max_step_seconds": 7_200}})

    assert {name: c.max_step_seconds for name, c in settings_of(classes).items()} == {"a": 540, "b": 7_200}


def test_lanes_share_half_of_a_class_the_best_with_the_most() -> None:
    given = configured({"a": {"concurrency": 200}, "b": {"lanes": ["fast", "slow"], "concurrency": 31}}).classes

    assert (dict(given["a"].lanes), given["a"].resume) == ({"high": 51, "normal": 33, "low": 16}, 100)
    assert (dict(given["b"].lanes), given["b"].resume) == ({"fast": 10, "slow": 5}, 16)


def test_each_lane_may_have_a_number_of_its_own() -> None:
    given = configured({"a": {"lanes": {"high": 20, "normal": 10, "low": 2}}}).classes["a"]

    assert (list(given.lanes), given.resume, given.concurrency) == (["high", "normal", "low"], 32, 64)


def test_what_a_class_says_of_resume_is_of_its_concurrency_and_the_lanes_share_the_rest() -> None:
    given = configured({"a": {"concurrency": 100, "resume": 80}}).classes["a"]

    assert (dict(given.lanes), given.concurrency) == ({"high": 11, "normal": 6, "low": 3}, 100)


@pytest.mark.parametrize("asked", [{"concurrency": 100, "resume": 80}, {"lanes": {"high": 500, "low": 200}}])
def test_an_emulator_gets_little_however_a_class_says_how_much(asked: Mapping[str, Any]) -> None:
    given = configured({"a": asked}, local="true").classes["a"]

    assert given.concurrency <= LOCAL_CONCURRENCY
    assert list(given.lanes) == list(asked.get("lanes", ["high", "normal", "low"]))


def test_an_emulator_gets_little_of_each_class() -> None:
    classes = configured(None, local="true").classes
    assert classes.keys() == {"model", "harness"}
    for given in classes.values():
        assert given.concurrency <= LOCAL_CONCURRENCY
        assert min(given.lanes.values()) >= 2


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"memory": 3}, "unknown .*memory.*; known are .*memory_mb"),
        ({"timeout_seconds": 901}, "timeout_seconds"),
        ({"memory_mb": "much"}, "memory_mb is a whole number"),
        ({"concurrency": 10}, "concurrency 10 is too little for 3 lanes: 14 is the least"),
        ({"lanes": ["a"], "concurrency": 3}, "concurrency 3 is too little for 1 lane: 4 is the least"),
        ({"concurrency": 100, "resume": 20}, "at least half"),
        ({"concurrency": 100, "resume": 95}, "resume leaves 5 of 100 for 3 lanes: 7 is the least"),
        ({"memory_mb": 64}, "memory_mb must be from 128 to 10,240"),
        ({"memory_mb": 10_241}, "memory_mb must be from 128 to 10,240"),
        ({"max_queue_depth": -1}, "max_queue_depth"),
        ({"emulated_batches": 0}, "emulated_batches"),
        ({"targets": ["high"]}, "targets: must be an object"),
        ({"targets": {"high": True}}, "targets: high is a whole number"),
        ({"pool": "process", "fargate": {"concurrency": 1.5}}, "fargate: concurrency is a whole number, not 1.5"),
        ({"pool": "process", "fargate": {"max_tasks": "9"}}, "fargate: max_tasks is a whole number, not '9'"),
        ({"pool": "process", "fargate": {"min_tasks": True}}, "fargate: min_tasks is a whole number"),
        ({"pool": "process", "fargate": {"image": 5}}, "fargate: image is a text"),
        ({"concurrency": 50, "lanes": {"a": 2}}, "concurrency is split over a list"),
        ({"lanes": []}, "lanes"),
        ({"lanes": ["a", "a"]}, "lanes"),
        ({"lanes": ["a", "b", "c", "d", "e", "f"]}, "at most 5 lanes"),
        ({"lanes": ["resume"]}, "lanes"),
        ({"lanes": ["dead"]}, "lanes"),
        ({"lanes": ["Fast"]}, "a lane's name"),
        ({"lanes": {"high": 2, "low": 3}}, "best has the most"),
        ({"lanes": {"high": 2, "low": 2}}, "best has the most"),
        ({"lanes": {"high": "2"}}, "a whole number"),
        ({"lanes": {"high": 20, "normal": 10}, "resume": 29}, "at least half"),
        ({"pool": "cluster"}, "there are: lambda, process"),
        ({"pool": "process", "reserved_concurrency": 100}, "reserved_concurrency"),
        ({"max_step_seconds": 3_600}, 'most is 840; pool = "process"'),
        ({"batch_size": 11}, "batch_size"),
        ({"reserved_concurrency": 99}, "reserved_concurrency"),
        (7, "must be an object"),
    ],
)
def test_what_would_not_work_is_refused_with_the_class_and_what_is_wrong(given: Any, names: str) -> None:
    with pytest.raises(ValueError, match=f"classes: m: .*{names}"):
        configured({"m": given})


def test_a_class_needs_a_name_that_queues_can_have_and_a_deployment_a_class() -> None:
    with pytest.raises(ValueError, match="classes: Big One: "):
        configured({"Big One": {}})
    with pytest.raises(ValueError, match="there is none"):
        classes_of({}, defaults={}, local=False)


@pytest.mark.parametrize("most", [MAPPING_CONCURRENCY.start - 1, MAPPING_CONCURRENCY.stop])
def test_a_concurrency_that_no_mapping_takes_is_refused(most: int) -> None:
    with pytest.raises(ValueError, match="MaximumConcurrency"):
        ClassConfig(lanes={"normal": most}, resume=1_000)


def test_a_class_that_reserves_what_its_mappings_use_is_fine() -> None:
    assert ClassConfig(reserved_concurrency=100).concurrency == 100
