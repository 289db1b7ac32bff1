"""`fanfold doctor` where there is nothing, or half of something, to look at: one sentence, and the right status."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
import pytest

from fanfold.commands.command_line import main
from fanfold.local.local_stack import DUMMY_CREDENTIALS
from fanfold.service.settings import Settings

Printed = pytest.CaptureFixture[str]
CREDENTIALS = (*DUMMY_CREDENTIALS, "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of no project, and no credentials to be found anywhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".fanfold").mkdir(mode=0o700)
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, emulator_url: str) -> None:
    """An account without any deployment."""
    for name, value in DUMMY_CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", emulator_url)


def deploy(session: boto3.Session, endpoint: str, name: str, outputs: dict[str, str]) -> None:
    """A stack with nothing in it but a topic, and these outputs."""
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {key: {"Value": value} for key, value in outputs.items()},
    }
    client = session.client("cloudformation", endpoint_url=endpoint)
    client.create_stack(StackName=name, TemplateBody=json.dumps(template))
    client.close()


def sentence(capsys: Printed) -> str:
    """What was said, which has to be one line and no traceback."""
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert printed.out == ""
    return line


def test_without_a_deployment_it_asks_which(capsys: Printed) -> None:
    assert main(["doctor"]) == 2
    assert "Name a deployed stack with --stack" in sentence(capsys)
    assert main(["doctor", "--stack", "local"]) == 2


def test_without_credentials_it_says_so(capsys: Printed) -> None:
    assert main(["doctor", "--stack", "fanfold-prod"]) == 4
    assert "credentials" in sentence(capsys)


def test_without_a_region_it_says_so(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    assert main(["doctor", "--stack", "fanfold-prod"]) == 4
    assert "region" in sentence(capsys)


def test_without_anybody_who_answers_it_says_so(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in DUMMY_CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert main(["doctor", "--stack", "fanfold-prod"]) == 4
    assert "http://127.0.0.1:9" in sentence(capsys)


@pytest.mark.emulator
@pytest.mark.usefixtures("account")
def test_without_the_stack_it_says_so(capsys: Printed) -> None:
    assert main(["doctor", "--stack", "fanfold-prod"]) == 4
    assert "no stack 'fanfold-prod'" in sentence(capsys)


@pytest.mark.emulator
@pytest.mark.usefixtures("account")
def test_a_stack_that_is_none_of_ours_is_no_deployment(
    capsys: Printed, session: boto3.Session, emulator_url: str
) -> None:
    deploy(session, emulator_url, "other", {"Settings": "{}"})
    assert main(["doctor", "--stack", "other"]) == 2
    assert "no output named Functions" in sentence(capsys)


@pytest.mark.emulator
@pytest.mark.usefixtures("account")
def test_half_a_stack_is_told_part_by_part(capsys: Printed, session: boto3.Session, emulator_url: str) -> None:
    queues = {
        "normal": "http://localhost:4566/1/normal",
        "resume": "http://localhost/1/r",
        "dead": "http://localhost/1/d",
    }
    settings = Settings(table="gone", classes={"model": Settings().classes["model"]}).to_env()
    settings["FANFOLD_CLASSES"] = json.dumps({"model": {"lanes": ["normal"], "queues": queues}})
    functions = json.dumps({"api": "gone", "worker-model": "gone"})
    deploy(
        session,
        emulator_url,
        "half",
        {"Settings": json.dumps(settings), "Functions": functions, "Table": "gone", "ApiUrl": "http://127.0.0.1:9/"},
    )
    assert main(["doctor", "--stack", "half", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {"visibility", "recursion", "table", "tokens", "runs"} <= {each["check"] for each in found}
    assert all("is not there" in each["what"] for each in found), found


@pytest.mark.parametrize(
    "arguments", [["--yes"], ["--fix", "--json"], ["--fixx"], ["fanfold-prod"], ["--stack"]], ids=" ".join
)
def test_wrong_usage_is_told(arguments: list[str]) -> None:
    assert main(["doctor", *arguments]) == 2
