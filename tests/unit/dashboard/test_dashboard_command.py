"""`fanfold dashboard` says in one sentence what it misses, and draws what it has."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
from rich.console import Console

from fanfold.commands.command_line import main
from fanfold.dashboard import data, page, picture, terminal
from fanfold.dashboard.data import Filled, Span
from fanfold.dashboard.deployed import Alarm
from fanfold.local import local_stack
from fanfold.local.local_stack import LocalError, LocalStack
from tests.support.cloudwatch import CloudWatch

BEGIN = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SPAN = Span(begin=BEGIN, end=BEGIN + timedelta(minutes=10))


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A project without a stack, on a machine without credentials."""
    (tmp_path / ".fanfold").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return tmp_path


@pytest.fixture
def an_account(nowhere: Path, emulator_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An account's address, with credentials for it in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", emulator_url)
    return emulator_url


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["dashboard", *arguments]) == 2
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    return said.err


@pytest.mark.parametrize("arguments", [(), ("--stack", "local")])
def test_without_a_stack_it_asks_for_one(
    nowhere: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert "--stack" in complaint(capsys, *arguments)


def test_without_credentials_it_says_so(nowhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no AWS credentials" in complaint(capsys, "--stack", "fanfold-prod")


def test_without_a_region_it_says_so(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    assert "no AWS region" in complaint(capsys, "--stack", "fanfold-prod")


@pytest.mark.emulator
def test_a_stack_that_is_not_there_is_named(an_account: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no stack named 'fanfold-prod'" in complaint(capsys, "--stack", "fanfold-prod")


@pytest.mark.emulator
def test_half_a_stack_is_said_to_be_that(
    an_account: str, session: boto3.Session, capsys: pytest.CaptureFixture[str]
) -> None:
    template = {"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}}
    cloudformation = session.client("cloudformation", endpoint_url=an_account)
    cloudformation.create_stack(StackName="undrawn", TemplateBody=json.dumps(template))
    cloudformation.close()
    assert "'undrawn' has no dashboard" in complaint(capsys, "--stack", "undrawn")


@pytest.mark.parametrize(
    "arguments",
    [("--hours", "0"), ("--hours", "1000", "--period", "60"), ("--watch", "--json"), ("--period", "0")],
)
def test_what_can_not_be_asked_for_is_usage(nowhere: Path, arguments: tuple[str, ...]) -> None:
    assert main(["dashboard", *arguments]) == 2


ALARM = Alarm(arn="arn:1", name="Stuck", state="ALARM", what="It is stuck.")


def a_page() -> list[Filled]:
    """Every kind of widget, with data and without."""
    slot = {"x": 0, "width": 12, "height": 6}
    rows = [
        ["F", "A", {"id": "a"}],
        ["F", "B", {"id": "b", "yAxis": "right"}],
    ]
    computed = [["F", "A", {"id": "a", "visible": False}], [{"expression": "a + nobody", "id": "e", "label": "sum"}]]
    marks = {"horizontal": [{"value": 2, "label": "target"}]}
    widgets = [
        {"type": "text", **slot, "y": 0, "properties": {"markdown": "## Is it done?\nSee [docs](x)."}},
        {
            "type": "metric",
            **slot,
            "y": 6,
            "properties": {"title": "Runs", "metrics": rows, "period": 60, "annotations": marks},
        },
        {
            "type": "metric",
            **slot,
            "y": 12,
            "properties": {"title": "Now", "view": "singleValue", "metrics": [["F", "A"]], "period": 60},
        },
        {
            "type": "metric",
            **slot,
            "y": 18,
            "properties": {"title": "Parts", "stacked": True, "metrics": [["F", "A"], ["F", "B"]], "period": 60},
        },
        {
            "type": "metric",
            **slot,
            "y": 24,
            "properties": {"title": "Theirs", "metrics": [["AWS/SQS", "C", "QueueName", "q"]], "period": 60},
        },
        {"type": "metric", **slot, "y": 27, "properties": {"title": "Sums", "metrics": computed, "period": 60}},
        {"type": "alarm", **slot, "y": 30, "properties": {"title": "Alarms", "alarms": ["arn:1", "arn:gone"]}},
        {"type": "log", **slot, "y": 36, "properties": {"title": "Lines"}},
    ]
    read = page.read(json.dumps({"widgets": widgets}))
    values = {"A": (1, None, 3), "B": range(10), "C": (), "a + nobody": ()}
    return [data.filled(CloudWatch(values, BEGIN), widget, SPAN) for widget in read.widgets]


def test_the_terminal_shows_every_widget_with_its_numbers_states_and_problems() -> None:
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115  # closed below
    console.print(terminal.shown("fanfold-x", a_page(), [ALARM], SPAN))
    console.file.close()
    text = console.export_text()
    for part in ("fanfold-x", "12:00 to 12:10 UTC", "1 alarm", "Is it done?", "Runs", "last 3", "max 9", "no data"):
        assert part in text
    for part in (
        "✗ Stuck: It is stuck.",
        "? arn:gone",
        "marked at 2: target",
        "not computed here: sum",
        "a log widget",
    ):
        assert part in text


def test_an_emulator_that_died_is_told_as_not_reachable(
    nowhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = LocalStack(
        api_url="http://127.0.0.1:9/api", token="ff_local", endpoint="http://127.0.0.1:9", region="us-east-1",
        table="t", bucket="b", stack="fanfold-local", ledger="/l",
    )  # fmt: skip
    local_stack.write(nowhere / ".fanfold", stack)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert main(["dashboard"]) == 4
    assert capsys.readouterr().err.startswith("AWS is not reachable: ")


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_newest_values_and_numbers_are_seen_however_narrow_the_terminal_is(width: int) -> None:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(terminal.shown("fanfold-x", a_page(), [ALARM], SPAN))
    text = console.export_text()
    assert "…" not in text
    row = next(line for line in text.splitlines() if line.startswith("B"))
    assert "█" in row
    assert "last 9" in row
    assert "max 9" in row


def test_what_has_no_data_takes_one_line_of_the_terminal_and_a_graph_says_what_it_is_in() -> None:
    rows = [["F", name, {"id": name.lower()}] for name in ("A", "C", "D")]
    axis = {"yAxis": {"left": {"label": "ms"}}}
    slot = {"x": 0, "y": 0, "width": 12, "height": 6}
    read = page.read(
        json.dumps({"widgets": [{"type": "metric", **slot, "properties": {"title": "Wait", "metrics": rows, **axis}}]})
    )
    filled = [data.filled(CloudWatch({"A": (1, 2), "C": (), "D": ()}, BEGIN), read.widgets[0], SPAN)]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(terminal.shown("fanfold-x", filled, [], SPAN))
    text = console.export_text()
    assert "Wait, ms\n" in text
    assert "no data: C, D\n" in text


def test_the_picture_is_drawn_with_every_kind_of_widget(tmp_path: Path) -> None:
    file = tmp_path / "page.png"
    picture.draw(file, "fanfold-x", a_page(), [ALARM], SPAN)
    assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert file.stat().st_size < 300_000


def test_a_picture_without_matplotlib_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(LocalError, match=r"fanfold\[dashboard\]") as told:
        picture.draw(tmp_path / "page.png", "x", a_page(), [], SPAN)
    assert told.value.status == 2


def test_a_picture_that_can_not_be_written_says_where(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no-such-folder") as told:
        picture.draw(tmp_path / "no-such-folder" / "page.png", "x", a_page()[:1], [], SPAN)
    assert told.value.status == 2
