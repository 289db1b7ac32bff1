"""The template keeps the promises: numbers that follow from each other, least privilege, nothing unwatched."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fanfold.adapters.aws import run_items
from fanfold.cdk.fanout import DELIVER_LOGS
from fanfold.engine.rules.engine_limits import MAX_LIFE
from fanfold.service.addresses import VARIABLES
from fanfold.service.settings import Settings
from tests.infra.conftest import ONE_CLASS, Synthesised, mentioned

DAY = 24 * 60 * 60
MODULES = {"api", "watch", "authorizer", "worker", "fanout", "deadletter", "sweeper"}
ROOT = Path(__file__).parents[2]
MACHINES = "arn:AWS::Partition:states:AWS::Region:AWS::AccountId:stateMachine:"


def environment(stack: Synthesised, function: dict[str, Any]) -> dict[str, str]:
    return {name: stack.text(value) for name, value in function["Environment"]["Variables"].items()}


def queue(stack: Synthesised, url: str) -> dict[str, Any]:
    return stack.all("AWS::SQS::Queue")[url]


@pytest.mark.parametrize("deployed", ["prod", "local"])
def test_every_functions_environment_is_the_settings(deployed: str, request: pytest.FixtureRequest) -> None:
    stack: Synthesised = request.getfixturevalue(deployed)
    assert set(stack.functions()) == MODULES

    (machine,) = stack.all("AWS::StepFunctions::StateMachine")
    for module, function in stack.functions().items():
        env = environment(stack, function)
        settings = Settings.from_env(env)
        assert settings == stack.config.settings(
            table=settings.table,
            bucket=settings.bucket,
            queues={"model": settings.classes["model"].queues},
            # The state machine knows its function; the two can't know each other.
            machines={} if module == "fanout" else {"model": f"{MACHINES}{machine}.Name"},
        )
        assert set(env) <= {*settings.to_env(brief=True), *VARIABLES}
        assert settings.table in stack.all("AWS::DynamoDB::Table")
        assert settings.bucket in stack.all("AWS::S3::Bucket")
        assert settings.stage == stack.config.stage
        assert set(settings.classes["model"].queues) == {"high", "normal", "low", "resume", "dead"}
        assert set(settings.classes["model"].queues.values()) == set(stack.all("AWS::SQS::Queue"))


def test_the_settings_are_told_as_an_output_that_a_worker_process_can_take(prod: Synthesised) -> None:
    told = json.loads(prod.text(prod.template["Outputs"]["Settings"]["Value"]))

    assert told == environment(prod, prod.functions()["worker"])


def test_an_emulator_gets_no_alarm_on_metric_math_which_it_refuses(local: Synthesised) -> None:
    alarms = local.all("AWS::CloudWatch::Alarm")
    assert alarms
    assert [name for name, alarm in alarms.items() if "Metrics" in alarm] == []


def test_an_emulator_gets_the_overrides_and_no_layer(local: Synthesised, prod: Synthesised) -> None:
    settings = Settings.from_env(environment(local, local.functions()["worker"]))

    assert (settings.chaos, settings.lease_seconds, settings.ledger) == (True, 5, "/somewhere/ledger.jsonl")
    assert settings.classes["model"].max_queue_depth == 7
    assert not local.all("AWS::Lambda::LayerVersion")
    assert len(prod.all("AWS::Lambda::LayerVersion")) == 1
    assert all(function["Layers"] for function in prod.functions().values())


def test_workers_can_be_left_to_processes(synth: Callable[..., Synthesised]) -> None:
    stack = synth({"local": "true", "mappings": "false", "classes": {"model": {}}})
    enabled = {
        stack.called(mapping["FunctionName"])[:5]: mapping.get("Enabled", True)
        for mapping in stack.all("AWS::Lambda::EventSourceMapping").values()
    }

    assert enabled == {"Model": False, "DeadL": True}


def test_a_message_stays_invisible_as_long_as_its_function_may_run(prod: Synthesised) -> None:
    mappings = prod.all("AWS::Lambda::EventSourceMapping").values()
    functions = prod.all("AWS::Lambda::Function")
    assert len(mappings) == 5

    for mapping in mappings:
        source = queue(prod, mapping["EventSourceArn"]["Fn::GetAtt"][0])
        assert source["VisibilityTimeout"] >= functions[prod.called(mapping["FunctionName"])]["Timeout"]


def test_the_longest_step_leaves_a_worker_a_minute(prod: Synthesised) -> None:
    worker = prod.functions()["worker"]

    longest = Settings.from_env(environment(prod, worker)).classes["model"].max_step_seconds
    assert (worker["Timeout"], longest) == (900, 840)


def test_only_what_a_function_lists_is_delivered_again(prod: Synthesised) -> None:
    for mapping in prod.all("AWS::Lambda::EventSourceMapping").values():
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert mapping.get("MaximumBatchingWindowInSeconds", 0) == 0


def test_resumed_runs_come_one_at_a_time_and_get_half(prod: Synthesised) -> None:
    queues = Settings.from_env(environment(prod, prod.functions()["worker"])).classes["model"].queues
    by_queue = {m["EventSourceArn"]["Fn::GetAtt"][0]: m for m in prod.all("AWS::Lambda::EventSourceMapping").values()}
    most = {role: by_queue[queues[role]]["ScalingConfig"]["MaximumConcurrency"] for role in queues if role != "dead"}

    assert {role: by_queue[queues[role]]["BatchSize"] for role in most} == {
        **dict.fromkeys(("high", "normal", "low"), 10),
        "resume": 1,
    }
    assert most["resume"] >= most["high"] + most["normal"] + most["low"]
    assert most["high"] > most["normal"] > most["low"] >= 2


def test_letters_outlive_the_queues_they_come_from(prod: Synthesised) -> None:
    queues = Settings.from_env(environment(prod, prod.functions()["worker"])).classes["model"].queues
    dead = queue(prod, queues["dead"])

    assert dead["MessageRetentionPeriod"] == 14 * DAY
    assert "RedrivePolicy" not in dead
    for role in ("high", "normal", "low", "resume"):
        source = queue(prod, queues[role])
        assert source["MessageRetentionPeriod"] == 7 * DAY
        assert source["RedrivePolicy"]["maxReceiveCount"] == 10
        assert source["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0] == queues["dead"]


def test_queues_and_bucket_take_tls_only(prod: Synthesised) -> None:
    kinds = ("AWS::SQS::QueuePolicy", "AWS::S3::BucketPolicy", "AWS::SNS::TopicPolicy")
    policies = [p for kind in kinds for p in prod.all(kind).values()]
    protected = [
        name
        for policy in policies
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny" and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        for name in mentioned([policy.get("Queues"), policy.get("Topics"), policy.get("Bucket")])
        # The statement is about what the policy is attached to.
        if name in mentioned(statement["Resource"])
    ]
    assert sorted(protected) == sorted(
        name for kind in ("AWS::SQS::Queue", "AWS::S3::Bucket", "AWS::SNS::Topic") for name in prod.all(kind)
    )


def test_the_table_is_what_the_items_need(prod: Synthesised) -> None:
    (table,) = prod.all("AWS::DynamoDB::Table").values()
    types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    indexes = {
        index["IndexName"]: ([key["AttributeName"] for key in index["KeySchema"]], index["Projection"])
        for index in table["GlobalSecondaryIndexes"]
    }

    assert [key["AttributeName"] for key in table["KeySchema"]] == [run_items.PK, run_items.SK]
    assert indexes == {
        run_items.LIST_INDEX: ([run_items.LIST_PK, run_items.LIST_SK], {"ProjectionType": "KEYS_ONLY"}),
        run_items.DUE_INDEX: ([run_items.DUE_PK, run_items.DUE_SK], {"ProjectionType": "KEYS_ONLY"}),
    }
    assert types == {"pk": "S", "sk": "S", "lp": "S", "ls": "S", "dp": "S", "ds": "N"}
    assert table["TimeToLiveSpecification"] == {"AttributeName": run_items.TTL, "Enabled": True}
    assert table["BillingMode"] == "PAY_PER_REQUEST"


def test_no_object_expires_before_the_longest_run(prod: Synthesised) -> None:
    (bucket,) = prod.all("AWS::S3::Bucket").values()
    rule, markers = bucket["LifecycleConfiguration"]["Rules"]

    assert rule["ExpirationInDays"] == MAX_LIFE.days + 30
    assert markers == {"Id": "markers", "Status": "Enabled", "ExpiredObjectDeleteMarker": True}


def test_no_setting_takes_objects_from_runs_that_were_accepted_before_it(synth: Callable[..., Synthesised]) -> None:
    stack = synth({"local": "true", "classes": ONE_CLASS, "settings": '{"max_life_days": 40}'})
    (bucket,) = stack.all("AWS::S3::Bucket").values()
    (rule,) = bucket["LifecycleConfiguration"]["Rules"]

    assert rule["ExpirationInDays"] == MAX_LIFE.days + 30


def test_data_outlives_the_stack_unless_the_stage_is_disposable(prod: Synthesised, local: Synthesised) -> None:
    def policies(stack: Synthesised) -> set[str]:
        kinds = ("AWS::DynamoDB::Table", "AWS::S3::Bucket")
        return {r["DeletionPolicy"] for r in stack.template["Resources"].values() if r["Type"] in kinds}

    assert policies(prod) == {"Retain"}
    assert policies(local) == {"Delete"}


def test_every_function_has_a_role_and_a_log_of_its_own(prod: Synthesised) -> None:
    functions = prod.functions().values()

    assert len({f["Role"]["Fn::GetAtt"][0] for f in functions}) == len(MODULES)
    logs = {f["LoggingConfig"]["LogGroup"]["Ref"] for f in functions}
    assert len(logs) == len(MODULES)
    assert all(prod.all("AWS::Logs::LogGroup")[name]["RetentionInDays"] == 90 for name in logs)


def test_no_permission_is_wider_than_the_resources_it_names(prod: Synthesised) -> None:
    statements = [s for p in prod.all("AWS::IAM::Policy").values() for s in p["PolicyDocument"]["Statement"]]
    resources = [r for s in statements for r in (s["Resource"] if isinstance(s["Resource"], list) else [s["Resource"]])]
    actions = [a for s in statements for a in ([s["Action"]] if isinstance(s["Action"], str) else s["Action"])]
    wild = {prod.text(resource) for resource in resources if "*" in prod.text(resource)}
    without_resource = [s for s in statements if s["Resource"] == "*"]
    (bucket,) = prod.all("AWS::S3::Bucket")

    (machine,) = prod.all("AWS::StepFunctions::StateMachine")
    executions = "arn:AWS::Partition:states:AWS::Region:AWS::AccountId:execution:"
    # Neither objects nor executions can be named beforehand; whose they are can.
    assert wild == {
        f"{bucket}.Arn/*",
        f"{executions}{machine}.Name:*",
        f"{executions}{machine}.Name/*:*",
        "*",
    }
    # What takes no resource at all: a state machine has its log delivered.
    assert [statement["Action"] for statement in without_resource] == [sorted(DELIVER_LOGS)]
    assert not [action for action in actions if "*" in action]
    assert not [r for r in prod.all("AWS::IAM::Role").values() if r.get("ManagedPolicyArns")]


def test_the_authorizer_may_read_the_table_and_nothing_else(prod: Synthesised) -> None:
    role = prod.functions()["authorizer"]["Role"]["Fn::GetAtt"][0]
    statements = [
        s
        for p in prod.all("AWS::IAM::Policy").values()
        if {"Ref": role} in p["Roles"]
        for s in p["PolicyDocument"]["Statement"]
    ]
    actions = {a for s in statements for a in ([s["Action"]] if isinstance(s["Action"], str) else s["Action"])}

    assert actions == {"dynamodb:GetItem", "logs:CreateLogStream", "logs:PutLogEvents"}


def test_lambda_never_cuts_a_loop_of_ours(prod: Synthesised) -> None:
    allowed = {module for module, f in prod.functions().items() if f["RecursiveLoop"] == "Allow"}

    assert allowed == {"worker", "deadletter"}


def test_the_sweeper_runs_each_minute_and_a_pass_ends_before_the_next(prod: Synthesised) -> None:
    (rule,) = (r for r in prod.all("AWS::Events::Rule").values() if "ScheduleExpression" in r)

    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert prod.functions()["sweeper"]["Timeout"] < 60


def test_every_alarm_tells_somebody_and_points_to_what_to_do(prod: Synthesised) -> None:
    alarms = prod.all("AWS::CloudWatch::Alarm").values()
    operations = (ROOT / "docs" / "operations.md").read_text()
    headings = {
        re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall("^#+ (.*)$", operations, re.M)
    }
    (topic,) = prod.all("AWS::SNS::Topic")

    for alarm in alarms:
        assert alarm["AlarmActions"] == [{"Ref": topic}]
        section = re.search(r"docs/operations\.md#([\w-]+)$", alarm["AlarmDescription"])
        assert section is not None, alarm["AlarmDescription"]
        assert section[1] in headings
    (subscription,) = prod.all("AWS::SNS::Subscription").values()
    assert subscription["Endpoint"] == "ops@example.org"


def test_what_must_be_noticed_has_an_alarm(prod: Synthesised) -> None:
    sections = {a["AlarmDescription"].rsplit("#", 1)[1] for a in prod.all("AWS::CloudWatch::Alarm").values()}

    assert sections == {
        "dead-letters",
        "oldest-message",
        "queue-wait",
        "failed-requests",
        "failed-runs",
        "stuck-runs",
        "refused-submits",
        "dropped-invocations",
        "function-errors",
        "throttled-functions",
        "sweeper-silent",
        "sweeper-slow",
        "table-throttles",
        "tasks-not-loaded",
    }


def test_a_silent_sweeper_alarms_because_there_is_no_data(prod: Synthesised) -> None:
    (alarm,) = (a for a in prod.all("AWS::CloudWatch::Alarm").values() if a["AlarmDescription"].endswith("silent"))

    assert alarm["TreatMissingData"] == "breaching"
