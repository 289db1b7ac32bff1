"""Each function's real code under its own synthesized policy: nothing it does is denied, nothing granted is unused."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from moto import mock_aws

from fanfold.adapters.aws.run_store import DynamoRunStore
from fanfold.adapters.message_codec import encode
from fanfold.engine.errors import NotFound
from fanfold.engine.ports import RunKey
from fanfold.engine.record.messages import DEAD, RESUME, Wake
from fanfold.service.aws_clients import Aws
from fanfold.service.bearer_tokens import SCOPES, mint
from fanfold.service.functions import authorizer, deadletter, sweeper
from fanfold.service.settings import Settings
from fanfold.service.wiring import Services, services
from fanfold.service.worker.invocation import Invocations
from fanfold.service.worker.map_batches import BatchInvocations
from tests.infra.conftest import Synthesised
from tests.support.http import Http
from tests.support.iam import (
    ACCOUNT,
    REGION,
    Request,
    Statement,
    allowed,
    of_key,
    policies_of,
    requests_of,
    when_missing,
)

Json = dict[str, Any]
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0f0e0d0c-1111-2222-3333-444455556666"
WATCHED = re.compile(r"/v1/runs/[^/?]+(/events)?(\?|$)|/v1/stream/")
"""What API Gateway hands to the watch function: `fanfold.cdk.api_gateway` has the routes."""
BIG = "big enough for S3 " * 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one function asked for, and whether its policy allows it."""

    function: str
    request: Request
    allowed: bool


@dataclass
class Role:
    """One function's policy as it is synthesized, and a session whose every call is judged by it."""

    name: str
    statements: list[Statement]
    session: boto3.Session
    judged: list[Judged] = field(default_factory=list)

    def client(self, service: str, **given: Any) -> Any:
        """See `boto3.Session.client`."""
        make: Any = self.session.client
        client = make(service, **given)

        def called(params: Json, model: Any, **_: Any) -> None:
            # The parameters as the code gave them; a presigned URL is made with the signer's rights, and judged, too.
            for request in requests_of(service, model.name, params):
                self.judge(request)

        def answered(parsed: Json, context: Any, **_: Any) -> None:
            if parsed.get("Error", {}).get("Code") == "NoSuchKey":
                self.judge(when_missing({"Bucket": BUCKET}))

        client.meta.events.register("provide-client-params", called)
        client.meta.events.register("after-call.s3.GetObject", answered)
        return client

    def judge(self, request: Request) -> None:
        for asked in (request, *of_key(request, KEY)):
            self.judged.append(
                Judged(function=self.name, request=asked, allowed=allowed(asked, self.statements)),
            )


BUCKET = "fanfold-payloads"


class Deployed:
    """The synthesized stack's functions, on moto: each on clients of its own that its own policy judges."""

    def __init__(self, stack: Synthesised) -> None:
        self.stack = stack
        self.admin = boto3.Session(aws_access_key_id="a", aws_secret_access_key="s", region_name=REGION)
        clients: Any = self.admin.client
        self.sqs, self.s3, self.dynamodb = clients("sqs"), clients("s3"), clients("dynamodb")
        self.states = clients("stepfunctions")
        self.machine = ""
        self._make()
        self.roles: dict[str, Role] = {}
        self._aws: list[Aws] = []

    def _make(self) -> None:
        for name, properties in self.stack.all("AWS::DynamoDB::Table").items():
            taken = {"KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes", "BillingMode"}
            self.dynamodb.create_table(TableName=name, **{k: v for k, v in properties.items() if k in taken})
        for name in self.stack.all("AWS::SQS::Queue"):
            self.sqs.create_queue(QueueName=name)
        self.s3.create_bucket(Bucket=BUCKET)
        (machine,) = self.stack.all("AWS::StepFunctions::StateMachine")
        waits = {"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 300, "End": True}}}
        role = f"arn:aws:iam::{ACCOUNT}:role/maps"
        made = self.states.create_state_machine(name=machine, roleArn=role, definition=json.dumps(waits))
        self.machine = made["stateMachineArn"]

    def close(self) -> None:
        for aws in self._aws:
            aws.close()
        for client in (self.sqs, self.s3, self.dynamodb, self.states):
            client.close()

    def arn(self, value: Any) -> str:
        """A part of a policy with its references as what they are on moto."""
        match value:
            case str():
                return value
            case {"Ref": "AWS::Partition"}:
                return "aws"
            case {"Ref": "AWS::Region"}:
                return REGION
            case {"Ref": "AWS::AccountId"}:
                return ACCOUNT
            case {"Ref": name} | {"Fn::GetAtt": [name, "Arn"]} if name in self.stack.all(
                "AWS::StepFunctions::StateMachine"
            ):
                return self.machine
            case {"Fn::GetAtt": [name, "Name"]}:
                return str(name)
            case {"Fn::GetAtt": [name, "Arn"]}:
                kind = self.stack.template["Resources"][name]["Type"]
                return {
                    "AWS::DynamoDB::Table": f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}",
                    "AWS::SQS::Queue": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}",
                    "AWS::S3::Bucket": f"arn:aws:s3:::{BUCKET}",
                    "AWS::Logs::LogGroup": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{name}",
                    "AWS::KMS::Key": KEY,
                }[kind]
            case {"Fn::Join": [between, parts]}:
                return str(between).join(self.arn(part) for part in parts)
        raise AssertionError(f"no ARN: {value}")

    def on(self, module: str) -> Services:
        """The services of a function: as its own environment says, on clients that its own policy judges."""
        function = self.stack.functions()[module]
        role = Role(
            name=module,
            statements=policies_of(self.stack.template, function["Role"]["Fn::GetAtt"][0], self.arn),
            session=self.admin,
        )
        self.roles[module] = role
        environ = {name: self.stack.text(value) for name, value in function["Environment"]["Variables"].items()}
        known = self.sqs.list_queues()["QueueUrls"]
        environ["FANFOLD_QUEUES_AT"] = f"{known[0].rpartition('/')[0]}/"
        environ["FANFOLD_BUCKET"] = BUCKET
        environ["FANFOLD_MACHINES_AT"] = f"{self.machine.rpartition(':')[0]}:"
        environ["FANFOLD_QUEUES"] = environ["FANFOLD_QUEUES"].replace(".Name", "")
        aws = Aws(role, threads=1)  # moto checks a condition and writes without a lock between
        self._aws.append(aws)
        return services(Settings.from_env(environ), aws)

    @property
    def judged(self) -> list[Judged]:
        return [each for role in self.roles.values() for each in role.judged]


ECHO = {"task": "core.echo", "input": "${input}"}
WIDE = {"over": "${input.items}", "task": "core.echo", "input": {"given": "${item}"}, "via": "stepfunctions"}
WORKFLOWS: list[Json] = [
    {"name": "pair", "steps": {"a": ECHO, "b": {**ECHO, "needs": ["a"]}}, "output": "${steps.b.output}"},
    {"name": "wide", "steps": {"each": {"map": WIDE, "timeout": "60s"}}, "output": "${steps.each.output}"},
    {"name": "gate", "steps": {"open": {"wait": {"signal": "go"}}, "after": {**ECHO, "needs": ["open"]}}},
    {"name": "timed", "steps": {"later": {"wait": {"for": "10s"}}}},
    {
        "name": "torn",
        "steps": {
            "each": {"map": WIDE, "timeout": "60s"},
            "first": ECHO,
            "bad": {"task": "core.echo", "needs": ["first"], "input": "${length(input.items[0])}"},
        },
    },
    {"name": "fails", "steps": {"a": {"task": "core.echo", "input": "${length(input)}"}}},
]


class Story:
    """What every function is for, once or more: submits, claims, maps, waits, repairs, dead letters."""

    def __init__(self, it: Deployed) -> None:
        self.it = it
        self.api = Http(services=it.on("api"))
        self.watch = Http(services=it.on("watch"))
        self.worker = Invocations(it.on("worker"))
        self.batches = BatchInvocations(it.on("fanout"))
        self.authorizer = authorizer.build(it.on("authorizer"))
        self.sweep = sweeper.build(it.on("sweeper"))
        self.letters = deadletter.build(it.on("deadletter"))
        self.settings = self.api.services.settings

    def call(self, method: str, path: str, body: Any = None, *, expect: int | None = None, **given: Any) -> Any:
        gateway = self.watch if method == "GET" and WATCHED.match(path) else self.api
        answer = gateway.app(gateway.event(method, path, body, **given), None)
        if expect is None:
            assert answer["statusCode"] < 400, (path, answer)
        else:
            assert answer["statusCode"] == expect, (path, answer)
        text = answer["body"] or "null"
        return json.loads(text) if text.startswith(("{", "[", "n")) else text

    def submit(self, workflow: str, given: Any = None, **more: Any) -> str:
        run_id: str = self.call("POST", "/v1/runs", {"workflow": workflow, "input": given, **more})["id"]
        return run_id

    def work(self, *roles: str) -> None:
        """The worker takes what these queues hold, as its mappings would hand it over, until they hold nothing."""
        for role in roles:
            url = self.settings.classes["model"].queues[role]
            while found := self.it.sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=1, AttributeNames=["All"], VisibilityTimeout=60
            ).get("Messages"):
                self.worker.work({"Records": [record(url, message) for message in found]}, seconds_left=890)
                for message in found:
                    self.it.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def status(self, run_id: str) -> str:
        found: str = self.call("GET", f"/v1/runs/{run_id}")["status"]
        return found

    def batch(self, run_id: str) -> None:
        """Every batch of the run's map, as the state machine has them worked on; then its execution is over."""
        given = self.execution(run_id)
        with self.it.s3.get_object(Bucket=BUCKET, Key=given["batches"])["Body"] as body:
            listed = json.loads(body.read())
        for each in listed:
            names = ("tenant", "run", "submission", "step", "try")
            event = {name: given[name] for name in names} | {"batch": each}
            assert self.batches.work(event, seconds_left=280) == "recorded"
        self.over(given)

    def execution(self, run_id: str) -> Json:
        """The input of the execution that works on the run's map."""
        (execution,) = [
            each
            for each in self.it.states.list_executions(stateMachineArn=self.it.machine)["executions"]
            if each["name"].startswith(run_id)
        ]
        given: Json = json.loads(self.it.states.describe_execution(executionArn=execution["executionArn"])["input"])
        return given | {"arn": execution["executionArn"]}

    def over(self, given: Json) -> None:
        """The execution ends, and says so to the queue."""
        self.it.states.stop_execution(executionArn=given["arn"])
        wake = Wake(
            tenant=given["tenant"],
            run_id=given["run"],
            submission=given["submission"],
            class_name="model",
            map_step="each",
        )
        self.it.sqs.send_message(QueueUrl=self.settings.classes["model"].queues[RESUME], MessageBody=encode(wake))

    # --- chapters -------------------------------------------------------------------------------

    def tokens(self) -> None:
        text, stored = mint(tenant="acme", owner="ann", scopes=SCOPES, now=datetime.now(UTC), draw=secrets.token_bytes)
        table = self.settings.table
        admin = services(self.settings, aws := Aws(self.it.admin, threads=1))
        asyncio.run(admin.tokens.put(stored))
        aws.close()
        assert table
        event = {"version": "2.0", "routeArn": "arn:…", "headers": {"authorization": f"Bearer {text}"}}
        assert self.authorizer(event, None)["context"]["tenant"] == "acme"

    def documents(self) -> None:
        for document in WORKFLOWS:
            self.call("PUT", f"/v1/workflows/{document['name']}", document)
        self.call("GET", "/v1/workflows")
        self.call("GET", "/v1/workflows/pair")
        # Whoever looks at a ticket first draws the key of all of them.
        self.call("GET", "/v1/stream/none", verdict=None, expect=401)
        for open_route in ("/v1/health", "/openapi.json", "/docs"):
            self.call("GET", open_route, verdict=None)

    def runs(self) -> None:
        small, big = (
            self.submit("pair", {"n": 1}, tags={"of": "story"}),
            self.submit("pair", {"text": BIG}, lane="high"),
        )
        self.call("POST", "/v1/runs", {"workflow": "pair"}, headers={"Idempotency-Key": "k"})
        self.call("POST", "/v1/runs", {"workflow": "pair"}, headers={"Idempotency-Key": "k"})
        self.call("POST", "/v1/runs/batch", {"runs": [{"workflow": "pair"}, {"workflow": "pair", "lane": "low"}]})
        self.work("high", "normal", "low", RESUME)
        assert (self.status(small), self.status(big)) == ("succeeded", "succeeded")
        shown = self.call("GET", f"/v1/runs/{big}?wait=1")
        assert shown["output"]["url"].startswith("https://")
        self.call("GET", f"/v1/runs/{big}?inline=true")
        wide = self.submit("pair", {"text": "too much for one answer " * 60_000})
        self.work("normal", RESUME)
        self.call("GET", f"/v1/runs/{wide}?inline=true", expect=303)
        self.call("GET", f"/v1/runs/{big}/events?wait=1")
        ticket = shown["links"]["stream"]
        self.call("GET", f"/{ticket}", verdict=None)
        self.call("GET", "/v1/runs?tag=of=story")
        self.call("GET", "/v1/runs?status=succeeded")
        self.call("GET", "/v1/queues")
        self.call("POST", f"/v1/runs/{small}/fork", {"from_step": "b"})
        self.work("normal", RESUME)

    def gone(self) -> None:
        """An object that is gone is told from one that may not be read: a 503, worth trying again."""
        run_id = self.submit("pair", {"text": BIG})
        for found in self.it.s3.list_objects_v2(Bucket=BUCKET)["Contents"]:
            if run_id in found["Key"]:
                self.it.s3.delete_object(Bucket=BUCKET, Key=found["Key"])
        self.call("GET", f"/v1/runs/{run_id}?inline=true", expect=500)  # `unreadable`
        self.work("normal", RESUME)  # what becomes of the run is another test's

    def operators(self) -> None:
        gate, held, queued = self.submit("gate"), self.submit("gate"), self.submit("pair", delay="60s")
        self.work("normal")
        for run_id in (gate, held):
            assert self.status(run_id) == "waiting"
            self.call("GET", f"/v1/runs/{run_id}?wait=0.1")
        self.call("POST", f"/v1/runs/{held}/pause")
        self.call("POST", f"/v1/runs/{held}/resume")
        self.call("POST", f"/v1/runs/{gate}/signals/go", {"text": BIG})
        self.call("POST", f"/v1/runs/{held}/cancel")
        self.call("POST", f"/v1/runs/{queued}/cancel")
        self.work(RESUME)
        assert (self.status(gate), self.status(held)) == ("succeeded", "cancelled")
        failed = self.submit("fails", 7)
        self.work("normal")
        self.call("POST", f"/v1/runs/{failed}/redrive")
        self.work(RESUME)

    def maps(self) -> None:
        whole, stopped, late = (self.submit("wide", {"items": [1, BIG, 3]}) for _ in range(3))
        self.work("normal")
        self.batch(whole)
        self.work(RESUME)
        assert self.status(whole) == "succeeded"
        self.call("GET", f"/v1/runs/{late}?progress=true")
        self.call("POST", f"/v1/runs/{stopped}/cancel")
        self.work(RESUME)
        torn, aborted, planless = (
            self.submit("torn", {"items": [1, 2, 3]}),
            *(self.submit("wide", {"items": [1, 2, 3]}) for _ in range(2)),
        )
        self.work("normal")
        assert self.status(torn) == "failed"
        self.over(self.execution(aborted))
        self.work(RESUME)
        assert self.status(aborted) == "failed"
        for found in self.it.s3.list_objects_v2(Bucket=BUCKET)["Contents"]:
            if planless in found["Key"] and found["Key"] != self.execution(planless)["batches"]:
                self.it.s3.delete_object(Bucket=BUCKET, Key=found["Key"])
        with pytest.raises(NotFound):  # told from a denial, which would be tried again
            self.batch(planless)

    def sweeps(self) -> None:
        """Runs that are due, out of time, abandoned, and whose envelope is gone."""
        timed = self.submit("timed")
        lost = self.submit("pair")
        self.work("normal")
        for role in ("normal", RESUME):
            self.it.sqs.purge_queue(QueueUrl=self.settings.classes["model"].queues[role])
        assert self.status(timed) == "waiting"
        expired = self.submit("pair")
        self.age(expired)
        for _ in range(2):
            self.sweep(None, None)
        assert self.status(expired) == "failed"
        assert lost

    def age(self, run_id: str) -> None:
        """The queued run was accepted long ago, and its time is up."""
        from datetime import timedelta

        from fanfold.engine.ports import IfVersion

        aws = Aws(self.it.admin, threads=1)
        store = DynamoRunStore(aws, self.settings.table)

        async def write() -> None:
            now = datetime.now(UTC)
            run = await store.get(RunKey(tenant="acme", run_id=run_id), now=now)
            assert run is not None
            older = replace(
                run,
                created_at=run.created_at - timedelta(hours=1),
                queue_deadline=now - timedelta(minutes=30),
                version=run.version + 1,
                write_id="aged",
            )
            await store.put(older, IfVersion(version=run.version, submission=run.submission), now=now)

        asyncio.run(write())
        aws.close()

    def dead_letters(self) -> None:
        url = self.settings.classes["model"].queues[DEAD]
        lane = self.settings.classes["model"].queues["normal"]
        self.work("normal")
        run_id = self.submit("pair")
        (message,) = self.it.sqs.receive_message(QueueUrl=lane, AttributeNames=["All"])["Messages"]
        assert run_id in message["Body"]
        stays = self.letters({"Records": [record(url, message)]}, None)
        assert stays == {"batchItemFailures": []}

    def close(self) -> None:
        self.authorizer.close()
        self.api.app.close()
        self.watch.app.close()
        for runner in (self.worker._loop, self.batches._loop):
            runner.close()

    def play(self) -> None:
        self.tokens()
        self.documents()
        self.runs()
        self.gone()
        self.operators()
        self.maps()
        self.sweeps()
        self.dead_letters()


def record(url: str, message: Json) -> Json:
    """A message as an event source mapping hands it over."""
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1796040000000"},
        "eventSourceARN": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{url.rpartition('/')[2]}",
    }


@pytest.fixture(scope="module")
def played(synth: Callable[..., Synthesised]) -> Iterator[Deployed]:
    """The story, told once on a stack with a key of the customer's."""
    stack = synth({"stage": "prod", "kms": KEY, "classes": {"model": {}}})
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_REGION", REGION)
        with mock_aws():
            it = Deployed(stack)
            story = Story(it)
            try:
                story.play()
                yield it
            finally:
                story.close()
                it.close()


def test_nothing_that_a_function_does_is_denied(played: Deployed) -> None:
    denied = {f"{each.function}: {each.request}" for each in played.judged if not each.allowed}
    assert not denied
    assert len(played.judged) > 300
    assert {each.function for each in played.judged} == set(played.stack.functions())


UNUSED = {
    "logs:CreateLogStream": "Lambda itself writes a function's log, with the function's role.",
    "logs:PutLogEvents": "The same.",
    **dict.fromkeys(
        (
            "kms:DescribeKey",
            "kms:Encrypt",
            "kms:GenerateDataKey",
            "kms:GenerateDataKeyWithoutPlaintext",
            "kms:ReEncryptFrom",
            "kms:ReEncryptTo",
        ),
        "DynamoDB asks a key's users for it when it sees fit; the story does not see that.",
    ),
}
"""Actions that no chapter of the story takes, and why a function may do them all the same."""
OF_MAPPINGS = {
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueUrl",
}
"""The mappings of the worker and of the dead-letter function take from queues by the functions' roles (Lambda, SQS);
CDK grants them so."""
OF_SWEEPER = {"s3:GetObject", "s3:PutObject", "s3:ListBucket"}
"""The sweeper ends queued runs by the writer that everybody has, which moves payloads of a big record to the bucket."""


def unused(roles: Mapping[str, Role]) -> set[tuple[str, str]]:
    """What functions may do and did not, by function and action, but for what has a reason."""
    found = set()
    for name, role in roles.items():
        done = {each.request.action for each in role.judged}
        reasons = UNUSED.keys() | (OF_MAPPINGS if name in ("worker", "deadletter") else set())
        reasons |= OF_SWEEPER if name == "sweeper" else set()
        found |= {(name, a) for each in role.statements for a in each.actions if a not in done | reasons}
    return found


def test_nothing_that_a_function_may_do_is_never_done(played: Deployed) -> None:
    assert unused(played.roles) == set()


def test_a_right_that_nobody_needs_is_noticed(played: Deployed) -> None:
    role = played.roles["authorizer"]
    more = replace(role, statements=[*role.statements, replace(role.statements[0], actions=("dynamodb:DeleteTable",))])
    assert unused({"authorizer": more}) == {("authorizer", "dynamodb:DeleteTable")}


def test_each_right_that_is_missing_is_noticed(played: Deployed) -> None:
    """Every action that was taken is denied without the statements that name it."""
    for role in played.roles.values():
        for action in {each.request.action for each in role.judged}:
            fewer = [each for each in role.statements if action not in each.actions]
            assert not all(allowed(each.request, fewer) for each in role.judged), (role.name, action)
