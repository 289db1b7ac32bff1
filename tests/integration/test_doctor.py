"""The doctor on the deployed stack: whole, it has no finding; each thing broken alone is found, alone."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from fanfold import Client
from fanfold.commands.command_line import main
from fanfold.doctor import code
from fanfold.doctor.deployment import Deployment
from fanfold.doctor.examination import CHECKS, examine
from fanfold.doctor.finding import Finding
from fanfold.engine.record.messages import DEAD, RESUME
from fanfold.local.local_stack import LocalStack
from tests.integration.test_local_stack import no_functions

pytestmark = pytest.mark.emulator

LANE = "normal"
DAY = 86_400


class Patient:
    """The deployed stack: what the doctor finds, and the means to break it."""

    def __init__(self, stack: LocalStack, session: boto3.Session) -> None:
        self.stack = stack
        self._session = session
        self._clients: dict[str, Any] = {}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def client(self, service: str) -> Any:
        if service not in self._clients:
            make: Any = self._session.client
            self._clients[service] = make(service, endpoint_url=self.stack.endpoint)
        return self._clients[service]

    def found(self, *names: str, now: datetime | None = None, **facts: Any) -> list[tuple[str, Finding]]:
        """What these checks find (all, if none is named); `facts` take the place of what AWS says."""
        deployment = Deployment(
            self.stack.stack,
            self._session,
            now=now or datetime.now(UTC),
            endpoint_url=self.stack.endpoint,
            local_stack=self.stack,
        )
        try:
            for name, fact in facts.items():
                known = getattr(deployment, name)
                setattr(deployment, name, fact(known))
            checks = [check for check in CHECKS if not names or check.name in names]
            return [(check.name, finding) for check, finding in examine(deployment, checks).findings]
        finally:
            deployment.close()

    def the_one(self, check: str, words: str, *, before: list[tuple[str, Finding]], **given: Any) -> Finding:
        """The one thing that is found now and was not before, which is of that check and has these words in it."""
        fresh = [each for each in self.found(**given) if each not in before]
        assert [(name, words in finding.what) for name, finding in fresh] == [(check, True)], fresh
        return fresh[0][1]

    def healed(self, check: str, finding: Finding) -> None:
        """The remedy makes the finding go away; a second time it does no harm."""
        assert finding.remedy is not None
        finding.remedy.apply()
        finding.remedy.apply()
        assert finding not in [each for _, each in self.found(check)]

    def set_queue(self, role: str, **attributes: str) -> None:
        url = self.stack.queues["model"][role]
        self.client("sqs").set_queue_attributes(QueueUrl=url, Attributes=attributes)

    def mapping(self, function: str, role: str) -> str:
        """The id of the mapping by which a function takes from a queue."""
        name = self.stack.queues["model"][role].rpartition("/")[2]
        told = self.client("lambda").list_event_source_mappings(FunctionName=f"{self.stack.functions[function]}:live")
        return next(str(m["UUID"]) for m in told["EventSourceMappings"] if m["EventSourceArn"].endswith(name))


@pytest.fixture(scope="module")
def patient(stack: LocalStack, session: boto3.Session) -> Iterator[Patient]:
    patient = Patient(stack, session)
    yield patient
    patient.close()


@pytest.fixture(scope="module")
def before(patient: Patient) -> list[tuple[str, Finding]]:
    """What other tests have left behind on the shared stack; of how it is deployed there is nothing."""
    found = patient.found()
    leftovers = {"letters", "slots", "runs", "tasks", "throttles", "tokens", "workers"}
    assert [finding for name, finding in found if name not in leftovers] == []
    return found


Before = list[tuple[str, Finding]]


@pytest.mark.parametrize(
    ("role", "attributes", "check", "words"),
    [
        (LANE, {"VisibilityTimeout": "30"}, "visibility", "model/normal hides a message for 30 s"),
        (DEAD, {"VisibilityTimeout": "1"}, "visibility", "model/dead hides a message for 1 s"),
        (LANE, {"RedrivePolicy": ""}, "redrive", "model/normal has no dead-letter queue"),
        (RESUME, {"MessageRetentionPeriod": str(DAY)}, "redrive", "model/resume keeps messages for 1 days; 7"),
        (DEAD, {"MessageRetentionPeriod": str(7 * DAY)}, "redrive", "model/dead keeps messages for 7 days; 14"),
    ],
)
def test_a_queue_that_was_changed_is_found_and_set_right(
    patient: Patient, before: Before, role: str, attributes: dict[str, str], check: str, words: str
) -> None:
    patient.set_queue(role, **attributes)
    patient.healed(check, patient.the_one(check, words, before=before))


@pytest.mark.parametrize(
    ("target", "receives", "words"), [(DEAD, 3, "after 3 receives"), (RESUME, 10, "not to model/dead")]
)
def test_a_redrive_policy_that_was_changed_is_found_and_set_right(
    patient: Patient, before: Before, target: str, receives: int, words: str
) -> None:
    told = patient.client("sqs").get_queue_attributes(
        QueueUrl=patient.stack.queues["model"][target], AttributeNames=["QueueArn"]
    )
    policy = {"deadLetterTargetArn": told["Attributes"]["QueueArn"], "maxReceiveCount": receives}
    patient.set_queue(LANE, RedrivePolicy=json.dumps(policy))
    patient.healed("redrive", patient.the_one("redrive", words, before=before))


def most(concurrency: int) -> dict[str, Any]:
    """A mapping's maximum concurrency, as Lambda takes it."""
    return {"ScalingConfig": {"MaximumConcurrency": concurrency}}


@pytest.mark.parametrize(
    ("function", "role", "broken", "check", "words"),
    [
        ("deadletter", DEAD, {"Enabled": False}, "mappings", "Nothing is taken from model/dead"),
        ("worker-model", LANE, {"FunctionResponseTypes": []}, "mappings", "model/normal does not report"),
        ("worker-model", RESUME, {"BatchSize": 10}, "mappings", "takes 10 messages at once"),
        ("worker-model", RESUME, most(1_000), "concurrency", "concurrent executions, the account has"),
        ("worker-model", RESUME, most(2), "concurrency", "resume queue of worker-model gets 2 of"),
    ],
)
def test_a_mapping_that_was_changed_is_found(
    patient: Patient,
    before: Before,
    function: str,
    role: str,
    broken: dict[str, Any],
    check: str,
    words: str,
) -> None:
    mapping = patient.mapping(function, role)
    told = patient.client("lambda").get_event_source_mapping(UUID=mapping)
    whole = {"Enabled": True} if "Enabled" in broken else {key: told[key] for key in broken}
    patient.client("lambda").update_event_source_mapping(UUID=mapping, **broken)
    try:
        patient.the_one(check, words, before=before)
    finally:
        patient.client("lambda").update_event_source_mapping(UUID=mapping, **whole)


def test_a_queue_nobody_takes_from_is_found(patient: Patient, before: Before) -> None:
    resume = patient.mapping("worker-model", RESUME)
    patient.the_one(
        "mappings",
        "No function takes from queue model/resume",
        before=before,
        mappings=lambda known: tuple(each for each in known if each[0].physical_id != resume),
    )


def test_a_mapping_that_was_deleted_is_named_with_its_queue_and_class_and_made_again(
    patient: Patient, before: Before, client: Client
) -> None:
    functions, lost = patient.client("lambda"), patient.mapping("worker-model", LANE)
    told = functions.get_event_source_mapping(UUID=lost)
    functions.delete_event_source_mapping(UUID=lost)
    words = f"Mapping {lost} was deleted: function worker-model takes nothing from queue model/normal of class model"
    finding = patient.the_one("mappings", words, before=before)
    assert ("stack" in finding.fix, "Make it again" in finding.fix) == (False, True)
    waiting = client.submit("tiny")["id"]
    patient.healed("mappings", finding)
    made = functions.get_event_source_mapping(UUID=patient.mapping("worker-model", LANE))
    same = ("EventSourceArn", "FunctionArn", "State", "BatchSize", "FunctionResponseTypes", "ScalingConfig")
    assert {key: made[key] for key in same} == {key: told[key] for key in same}
    assert client.wait(waiting, timeout=60)["status"] == "succeeded"
    assert patient.found("mappings", "concurrency", "visibility") == []


def test_a_lane_that_nobody_works_on_is_found_once_its_runs_have_waited_for_minutes(
    patient: Patient, client: Client
) -> None:
    with no_functions(patient.stack):
        waiting = client.submit("tiny")["id"]
        soon, later = (datetime.now(UTC) + timedelta(minutes=minutes) for minutes in (2, 4))
        assert [each for _, each in patient.found("workers", now=soon) if waiting in each.what] == []
        ((_, finding),) = patient.found("workers", now=later)
        assert finding.what.startswith("Nobody works on lane normal of class model: ")
        assert waiting in finding.what
    assert client.wait(waiting, timeout=60)["status"] == "succeeded"
    assert patient.found("workers", now=later) == []


def test_a_reservation_below_the_mappings_is_found(patient: Patient, before: Before) -> None:
    functions, name = patient.client("lambda"), patient.stack.functions["worker-model"]
    functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=3)
    try:
        patient.the_one("concurrency", "worker-model has 3 executions reserved, its mappings may use", before=before)
    finally:
        functions.delete_function_concurrency(FunctionName=name)


def test_a_function_whose_loops_are_cut_is_found_and_allowed_its_loop(patient: Patient, before: Before) -> None:
    name = patient.stack.functions["worker-model"]
    patient.client("lambda").put_function_recursion_config(FunctionName=name, RecursiveLoop="Terminate")
    patient.healed("recursion", patient.the_one("recursion", "worker-model says Terminate", before=before))


def test_a_sweeper_that_is_switched_off_is_found_and_switched_on(patient: Patient, before: Before) -> None:
    rules = patient.client("events")
    (rule,) = [each["Name"] for each in rules.list_rules()["Rules"] if "ScheduleExpression" in each]
    rules.disable_rule(Name=rule)
    patient.healed("schedule", patient.the_one("schedule", f"{rule} is switched off", before=before))


def test_rows_that_do_not_expire_are_found_and_expire_again(patient: Patient, before: Before) -> None:
    patient.client("dynamodb").update_time_to_live(
        TableName=patient.stack.table, TimeToLiveSpecification={"AttributeName": "x", "Enabled": False}
    )
    patient.healed("table", patient.the_one("table", "do not expire", before=before))


def test_data_for_keeps_is_recoverable_and_protected_and_its_alarms_are_heard(patient: Patient, before: Before) -> None:
    prod: Any = {"settings": lambda known: replace(known, stage="prod")}
    fresh = [each for each in patient.found("table", "alarms", **prod) if each not in before]
    assert [name for name, _ in fresh] == ["table", "table", "alarms"]
    assert ["no point-in-time" in fresh[0][1].what, "not protected" in fresh[1][1].what] == [True, True]
    assert "nobody has subscribed" in fresh[2][1].what
    topic = patient.client("sns").list_topics()["Topics"][0]["TopicArn"]
    heard = patient.client("sns").subscribe(
        TopicArn=topic, Protocol="sqs", Endpoint="arn:aws:sqs:us-east-1:000000000000:pager", ReturnSubscriptionArn=True
    )
    for _, finding in fresh[:2]:
        assert finding.remedy is not None
        finding.remedy.apply()
    try:
        assert patient.found("table", "alarms", **prod) == []
    finally:
        dynamodb = patient.client("dynamodb")
        dynamodb.update_table(TableName=patient.stack.table, DeletionProtectionEnabled=False)
        dynamodb.update_continuous_backups(
            TableName=patient.stack.table, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": False}
        )
        patient.client("sns").unsubscribe(SubscriptionArn=heard["SubscriptionArn"])


def test_an_alarm_that_is_muted_mute_or_gone_is_found(patient: Patient, before: Before) -> None:
    alarms = patient.client("cloudwatch")
    alarm = alarms.describe_alarms()["MetricAlarms"][0]
    name = alarm["AlarmName"]
    taken = {"AlarmName", "AlarmDescription", "ActionsEnabled", "AlarmActions", "MetricName", "Namespace", "Statistic"}
    taken |= {"Dimensions", "Period", "EvaluationPeriods", "Threshold", "ComparisonOperator", "TreatMissingData"}
    whole = {key: value for key, value in alarm.items() if key in taken}
    alarms.disable_alarm_actions(AlarmNames=[name])
    patient.healed("alarms", patient.the_one("alarms", f"{name} are switched off", before=before))
    try:
        alarms.put_metric_alarm(**{**whole, "AlarmActions": []})
        patient.the_one("alarms", f"{name} has no action", before=before)
        alarms.delete_alarms(AlarmNames=[name])
        patient.the_one("alarms", f"{name} is gone", before=before)
    finally:
        alarms.put_metric_alarm(**whole)


def test_logs_that_are_kept_for_ever_or_too_short_are_found_and_nothing_is_deleted(
    patient: Patient, before: Before
) -> None:
    logs = patient.client("logs")
    group = patient.stack.log_groups["sweeper"]
    (told,) = logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]
    logs.delete_retention_policy(logGroupName=group)
    for_ever = patient.the_one("logs", f"{group} keeps logs for ever", before=before)
    assert for_ever.remedy is None  # it would delete what is old
    assert f"--log-group-name {group} --retention-in-days {told['retentionInDays']}" in for_ever.fix
    logs.put_retention_policy(logGroupName=group, retentionInDays=1)
    patient.healed("logs", patient.the_one("logs", f"{group} keeps logs for 1 days", before=before))


def test_throttles_of_the_last_hours_are_found(patient: Patient, before: Before) -> None:
    then = datetime.now(UTC) - timedelta(days=5)  # where no other test looks
    patient.client("cloudwatch").put_metric_data(
        Namespace="AWS/Lambda",
        MetricData=[
            {
                "MetricName": "Throttles",
                "Dimensions": [{"Name": "FunctionName", "Value": patient.stack.functions["api"]}],
                "Value": 40,
                "Timestamp": then - timedelta(hours=1),
            }
        ],
    )
    ((name, finding),) = patient.found("throttles", now=then)
    assert (name, "function api was throttled" in finding.what) == ("throttles", True)
    assert patient.found("throttles", now=then + timedelta(hours=6)) == []


def test_tasks_that_could_not_be_loaded_are_found(patient: Patient, before: Before) -> None:
    then = datetime.now(UTC) - timedelta(days=4)  # where no other test looks
    patient.client("cloudwatch").put_metric_data(
        Namespace="Fanfold",
        MetricData=[
            {
                "MetricName": "TasksNotLoaded",
                "Dimensions": [{"Name": "service", "Value": patient.stack.stack}],
                "Value": 2,
                "Timestamp": then - timedelta(hours=1),
            }
        ],
    )
    ((name, finding),) = patient.found("tasks", now=then)
    assert (name, "told 2 times" in finding.what) == ("tasks", True)
    assert patient.found("tasks", now=then + timedelta(hours=6)) == []


def test_a_dead_letter_that_stays_is_found(patient: Patient, before: Before) -> None:
    url = patient.stack.queues["model"][DEAD]
    patient.client("sqs").send_message(QueueUrl=url, MessageBody="none of ours")
    try:
        patient.the_one("letters", "1 dead letter in queue model/dead", before=before)
    finally:
        patient.client("sqs").purge_queue(QueueUrl=url)


def changed(name: str, **facts: Any) -> Callable[[Any], Any]:
    """One function's configuration with other facts in it."""
    return lambda functions: {**functions, name: {**functions[name], **facts}}


def test_a_function_of_other_code_python_or_layers_is_found(patient: Patient, before: Before) -> None:
    def the_one(words: str, **facts: Any) -> None:
        patient.the_one("code", words, before=before, functions=changed("sweeper", **facts))

    the_one("sweeper: other code", CodeSha256="of another deployment")
    the_one("sweeper: other Python", Runtime="python3.12")


def test_a_layer_of_another_python_is_found(patient: Patient) -> None:
    layer = patient.client("lambda").publish_layer_version(
        LayerName=f"doctor-{uuid.uuid4()}",
        Content={"ZipFile": b"PK\x05\x06" + bytes(18)},
        CompatibleRuntimes=["python3.11"],
    )
    arn = layer["LayerVersionArn"]
    found = patient.found(
        "code", functions=lambda known: {name: {**each, "Layers": [{"Arn": arn}]} for name, each in known.items()}
    )
    assert ["made for python3.11" in finding.what for _, finding in found] == [True]
    odd = patient.found("code", functions=changed("api", Layers=[{"Arn": arn}]))
    assert ["api: other layers" in finding.what for _, finding in odd] == [True, False]


def test_a_function_whose_settings_were_changed_is_found(patient: Patient, before: Before) -> None:
    functions, name = patient.client("lambda"), patient.stack.functions["deadletter"]
    environment = functions.get_function_configuration(FunctionName=name)["Environment"]
    other = {"Variables": {**environment["Variables"], "FANFOLD_LEASE_SECONDS": "7.0"}}
    deployed = functions.get_alias(FunctionName=name, Name="live")["FunctionVersion"]
    functions.update_function_configuration(FunctionName=name, Environment=other)
    try:
        # What nobody calls is nothing: only the alias runs.
        assert patient.found("code") == [each for each in before if each[0] == "code"]
        version = functions.publish_version(FunctionName=name)["Version"]
        functions.update_alias(FunctionName=name, Name="live", FunctionVersion=version)
        patient.the_one("code", "deadletter has other settings than the stack states: lease_seconds", before=before)
    finally:
        functions.update_function_configuration(FunctionName=name, Environment=environment)
        functions.update_alias(FunctionName=name, Name="live", FunctionVersion=deployed)


def test_an_api_of_another_version_is_found(patient: Patient, before: Before, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "VERSION", "99.0.0")
    patient.the_one("code", "this command is 99.0.0", before=before)


def test_whoever_is_gone_is_named_and_the_others_are_looked_at(patient: Patient, before: Before) -> None:
    """Half a stack: the table was deleted by hand."""
    found = patient.found(settings=lambda known: replace(known, table="no-such-table"))
    gone = {name for name, finding in found if "is not there" in finding.what}
    assert gone == {"table", "tokens", "slots", "workers", "runs", "clock"}
    # The functions, which were not deployed with that table, do have other settings than these.
    assert {name for name, _ in found} - gone <= {"code", *(name for name, _ in before)}


def test_the_command_tells_asks_and_fixes(
    patient: Patient, before: Before, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(patient.stack.ledger).parent)
    patient.set_queue(LANE, VisibilityTimeout="30")
    assert main(["doctor"]) == 1
    told = capsys.readouterr().out
    assert "visibility: Queue model/normal hides a message for 30 s" in told
    left = len(before)  # by other tests, on a shared stack
    assert told.splitlines()[-1] == f"{patient.stack.stack}: {1 + left} finding{'s' if left else ''}."
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert main(["doctor", "--fix"]) == 1
    assert "Nothing was changed." in capsys.readouterr().err
    status = main(["doctor", "--fix", "--yes", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    fixed = {each["check"]: each.get("fixed") for each in findings}  # None: without a remedy of the doctor's own
    unfixed = [check for check, done in fixed.items() if not done]
    assert fixed["visibility"] is True
    assert (status, len(findings)) == (int(bool(unfixed)), 1 + left)
    assert main(["doctor", "--fix", "--yes"]) == int(bool(unfixed))
    told = capsys.readouterr().out
    assert "visibility:" not in told
    assert (told == f"{patient.stack.stack}: nothing is wrong.\n") == (not unfixed)
