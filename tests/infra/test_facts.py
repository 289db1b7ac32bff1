"""What AWS will meet: who lets whom in, under which condition, and what else an emulator would not mind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.infra.conftest import Json, Synthesised, mentioned


def statements(stack: Synthesised, kind: str) -> list[Json]:
    return [s for policy in stack.all(kind).values() for s in policy["PolicyDocument"]["Statement"]]


def services(statement: Json) -> list[str]:
    principal = statement["Principal"]
    named = principal.get("Service", ()) if isinstance(principal, dict) else ()
    return [named] if isinstance(named, str) else list(named)


@pytest.fixture(scope="module")
def encrypted(synth: Callable[..., Synthesised]) -> Synthesised:
    """With a key of the customer's, and two classes."""
    classes = '{"model": {}, "harness": {"batch_size": 1}}'
    return synth({"stage": "prod", "kms": "true", "classes": classes}, nag=True)


@pytest.mark.parametrize("deployed", ["prod", "local", "encrypted"])
def test_cloudwatch_may_publish_to_every_topic_that_an_alarm_tells(
    deployed: str, request: pytest.FixtureRequest
) -> None:
    stack: Synthesised = request.getfixturevalue(deployed)
    told = {action["Ref"] for alarm in stack.all("AWS::CloudWatch::Alarm").values() for action in alarm["AlarmActions"]}
    let_in = {
        topic["Ref"]
        for policy in stack.all("AWS::SNS::TopicPolicy").values()
        for topic in policy["Topics"]
        for statement in policy["PolicyDocument"]["Statement"]
        if (statement["Effect"], services(statement)) == ("Allow", ["cloudwatch.amazonaws.com"])
        and (statement["Action"], statement["Resource"]) == ("sns:Publish", topic)
        and statement["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    }
    assert told == let_in != set()


CONDITIONS = ("aws:SourceAccount", "aws:SourceArn")


@pytest.mark.parametrize("deployed", ["prod", "encrypted"])
@pytest.mark.parametrize("kind", ["AWS::SQS::QueuePolicy", "AWS::SNS::TopicPolicy"])
def test_a_service_is_let_in_only_for_this_account(kind: str, deployed: str, request: pytest.FixtureRequest) -> None:
    """A service acts for whoever asks it to: without a condition that may be anybody's account."""
    found = [s for s in statements(request.getfixturevalue(deployed), kind) if s["Effect"] == "Allow"]
    assert found
    for statement in found:
        assert services(statement), statement
        assert named(statement) & set(CONDITIONS), statement


def test_a_service_may_use_the_key_only_for_this_account(encrypted: Synthesised) -> None:
    (key,) = encrypted.all("AWS::KMS::Key").values()
    found = [statement for statement in key["KeyPolicy"]["Statement"] if services(statement)]
    assert [services(statement) for statement in found] == [["events.amazonaws.com"]]
    for statement in found:
        assert named(statement) & set(CONDITIONS), statement


def named(statement: Json) -> set[str]:
    """The condition keys of a statement."""
    conditions: dict[str, dict[str, Any]] = statement.get("Condition", {})
    return {key for of_kind in conditions.values() for key in of_kind}


LATE = {"AWS/SQS", "AWS/DynamoDB"}
"""Whose points come a minute or two after their time."""


def test_no_alarm_that_fills_gaps_hangs_on_the_last_points_alone(
    synth: Callable[..., Synthesised], shipped: Synthesised
) -> None:
    """A series that is late reads as 0, and an alarm does not look again at a period it has judged."""
    fargate = {"harness": {"pool": "process", "fargate": {}}, "model": {}}
    pooled = synth({"stage": "prod", "classes": json.dumps(fargate)})
    seen = 0
    for stack in (shipped, pooled):
        for name, alarm in stack.all("AWS::CloudWatch::Alarm").items():
            filled = [m for m in alarm.get("Metrics", ()) if "FILL(" in m.get("Expression", "")]
            above = alarm["ComparisonOperator"] == "GreaterThanThreshold"
            if filled and above:
                seen += 1
                assert alarm["DatapointsToAlarm"] < alarm["EvaluationPeriods"], name
    assert seen > 8


def test_containers_are_added_by_the_longest_wait_of_the_periods_looked_at(synth: Callable[..., Synthesised]) -> None:
    classes = json.dumps({"harness": {"pool": "process", "fargate": {}}})
    stack = synth({"stage": "prod", "classes": classes})
    (more,) = (
        policy["StepScalingPolicyConfiguration"]
        for policy in stack.all("AWS::ApplicationAutoScaling::ScalingPolicy").values()
        if policy["StepScalingPolicyConfiguration"]["AdjustmentType"] == "ChangeInCapacity"
    )
    (waiting,) = (a for name, a in stack.all("AWS::CloudWatch::Alarm").items() if "Waiting" in name)
    # The average, or the last one, may be of a minute that nobody has told of yet: no step is for a wait of 0.
    assert more["MetricAggregationType"] == "Maximum"
    assert (waiting["Period"] if "Period" in waiting else waiting["Metrics"][1]["MetricStat"]["Period"]) == 60
    assert (waiting["DatapointsToAlarm"], waiting["EvaluationPeriods"]) == (1, 5)


HTTP_VARIABLES = {
    *("accountId", "apiId", "authorizer.error", "authorizer.principalId", "awsEndpointRequestId", "dataProcessed"),
    *("domainName", "domainPrefix", "error.message", "error.messageString", "error.responseType", "extendedRequestId"),
    *("httpMethod", "identity.sourceIp", "identity.userAgent", "integration.error", "integration.integrationStatus"),
    *("integration.latency", "integration.requestId", "integration.status", "integrationErrorMessage"),
    *("integrationLatency", "integrationStatus", "path", "protocol", "requestId", "requestTime", "requestTimeEpoch"),
    *("responseLatency", "responseLength", "routeKey", "stage", "status"),
}
"""Of HTTP APIs (API Gateway, customizing HTTP API access logs); those of users' identities are left out."""


def test_the_access_log_names_only_variables_that_an_http_api_has(prod: Synthesised) -> None:
    (stage,) = prod.all("AWS::ApiGatewayV2::Stage").values()
    line = json.loads(stage["AccessLogSettings"]["Format"])
    assert {variable.removeprefix("$context.") for variable in line.values()} <= HTTP_VARIABLES


def test_what_services_of_aws_log_lies_where_no_policy_for_each_group_is_needed(shipped: Synthesised) -> None:
    groups = shipped.all("AWS::Logs::LogGroup")
    (stage,) = shipped.all("AWS::ApiGatewayV2::Stage").values()
    written = [stage["AccessLogSettings"]["DestinationArn"]["Fn::GetAtt"][0]]
    for machine in shipped.all("AWS::StepFunctions::StateMachine").values():
        (destination,) = machine["LoggingConfiguration"]["Destinations"]
        written.append(destination["CloudWatchLogsLogGroup"]["LogGroupArn"]["Fn::GetAtt"][0])
    assert len(written) == 3
    names = [groups[name]["LogGroupName"] for name in written]
    assert len(set(names)) == 3
    assert all(name.startswith("/aws/vendedlogs/") and len(name) <= 512 for name in names)
    # No other group has a name of ours: two of one name can't be, and a replacement would stop.
    assert [name for name, group in groups.items() if "LogGroupName" in group] == sorted(
        written, key=list(groups).index
    )


def test_a_batch_that_fails_leaves_its_reason_in_a_log(shipped: Synthesised, local: Synthesised) -> None:
    machines = shipped.all("AWS::StepFunctions::StateMachine").values()
    assert machines
    for machine in machines:
        logging = machine["LoggingConfiguration"]
        assert (logging["Level"], logging["IncludeExecutionData"]) == ("ERROR", True)
    roles = {machine["RoleArn"]["Fn::GetAtt"][0] for machine in machines}
    allowed = {
        role["Ref"]
        for policy in shipped.all("AWS::IAM::Policy").values()
        for statement in policy["PolicyDocument"]["Statement"]
        if "logs:CreateLogDelivery" in statement["Action"] and statement["Resource"] == "*"
        for role in policy["Roles"]
    }
    assert roles == allowed
    assert not [m for m in local.all("AWS::StepFunctions::StateMachine").values() if "LoggingConfiguration" in m]


def test_no_function_keeps_its_log_for_ever_not_even_those_that_cdk_adds(synth: Callable[..., Synthesised]) -> None:
    for context in ({"stage": "dev"}, {"stage": "prod", "api": "rest"}):
        stack = synth(context)
        groups = stack.all("AWS::Logs::LogGroup")
        assert all("RetentionInDays" in group for group in groups.values())
        functions = stack.all("AWS::Lambda::Function")
        assert len(functions) > len(stack.functions()), "CDK adds some"
        for name, function in functions.items():
            assert function.get("LoggingConfig", {}).get("LogGroup", {}).get("Ref") in groups, name


@pytest.mark.parametrize("api", ["http", "rest"])
def test_everything_that_calls_a_function_calls_its_alias(api: str, synth: Callable[..., Synthesised]) -> None:
    """Lambda changes a function's code and its settings one after the other; an alias moves to both at once."""
    stack = synth({"stage": "prod", "api": api})
    ours = {name for name, f in stack.all("AWS::Lambda::Function").items() if f["Handler"].startswith("functions.")}
    resources = stack.template["Resources"]
    # Beside the version and what alarms and logs say of it, nothing names the function itself.
    about = {"AWS::Lambda::Version", "AWS::Lambda::Alias", "AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard"}
    about.add("AWS::Lambda::EventInvokeConfig")  # which has the alias beside it
    callers = {
        resource["Type"]: name
        for name, resource in resources.items()
        if resource["Type"] not in about and ours & set(mentioned(resource))
    }
    assert not callers
    called = {
        resource["Type"]
        for resource in resources.values()
        if set(stack.all("AWS::Lambda::Alias")) & set(mentioned(resource))
    }
    integration = "AWS::ApiGatewayV2::Integration" if api == "http" else "AWS::ApiGateway::Method"
    assert called >= {
        *("AWS::Lambda::EventSourceMapping", "AWS::Events::Rule", "AWS::StepFunctions::StateMachine"),
        *("AWS::Lambda::Permission", "AWS::IAM::Policy", "AWS::ApiGatewayV2::Authorizer", integration),
    } - ({"AWS::ApiGatewayV2::Authorizer"} if api == "rest" else set())
    assert len(stack.all("AWS::Lambda::Alias")) == len(ours)


def test_other_settings_are_another_version_and_the_same_ones_none(synth: Callable[..., Synthesised]) -> None:
    def versions(**settings: Any) -> set[str]:
        return set(synth({"stage": "prod", "settings": json.dumps(settings)}).all("AWS::Lambda::Version"))

    assert versions() == versions()
    assert not versions() & versions(lease_seconds=50)


def test_no_version_is_deleted_while_it_may_still_work(shipped: Synthesised) -> None:
    kept = [r for r in shipped.template["Resources"].values() if r["Type"] == "AWS::Lambda::Version"]
    assert {each["DeletionPolicy"] for each in kept} == {"Retain"}


def test_a_dozen_classes_do_not_fit_into_a_stack_and_nine_do(synth: Callable[..., Synthesised]) -> None:
    names = ("model", "harness", "nightly", "reports", "batch", "eu", "us", "slow", "gpu")
    assert len(synth({"stage": "prod", "classes": {name: {} for name in names}}).template["Resources"]) <= 500


@pytest.mark.parametrize("api", ["http", "rest"])
def test_what_callers_meet_has_executions_of_its_own_where_somebody_says_so(
    api: str, synth: Callable[..., Synthesised], prod: Synthesised
) -> None:
    """By default nothing is reserved: Lambda refuses that in an account with a quota of 10."""
    stack = synth({"stage": "prod", "api": api, "reserved": '{"api": 200, "authorizer": 20, "watch": 120}'})
    reserved = {name: f.get("ReservedConcurrentExecutions") for name, f in stack.functions().items()}
    assert {name: most for name, most in reserved.items() if most} == {"api": 200, "authorizer": 20, "watch": 120}
    assert not [name for name, f in prod.functions().items() if "ReservedConcurrentExecutions" in f]
