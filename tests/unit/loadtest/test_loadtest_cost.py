"""What runs take of AWS, exactly, and what that costs: counts in memory, the formula, the prices."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from fanfold.service.settings import ClassSettings, Settings
from loadtest.aws_meter import REQUEST_BYTES, Meter
from loadtest.cost import dollars, durable, express, standard, total, usage, writes
from loadtest.cost_model_stores import metered
from loadtest.invoking import Counted, Functions
from loadtest.prices import PRICES, Part
from loadtest.report import write
from loadtest.results import read
from loadtest.scenario import perform
from loadtest.scenarios.cost import cost
from loadtest.shapes import FOUR, REVIEW, TINY, WIDE, Shape, chain

SUBMIT = {"GetItem": 1, "SendMessage": 1, "UpdateItem": 2}
"""One read of the workflow's current version, one send; a place is taken and given back."""
A_BATCH = ("ReceiveMessage", "ChangeMessageVisibilityBatch", "DeleteMessageBatch")
"""Once for each invocation of the worker."""


async def counted(shape: Shape, *, runs: int = 1) -> Counted:
    """What runs of a shape take of functions that have run it before, all in one invocation."""
    classes = {"model": ClassSettings(state_machine="memory")}
    meter = Meter()
    services, beside = metered(Settings(classes=classes, submits_per_minute=0), meter)
    functions = Functions(services, meter, beside=beside, readable=beside.blobs)
    await functions.apply(shape.document)
    await functions.carry(shape.document["name"], shape.given)
    return await functions.carry(shape.document["name"], shape.given, runs=runs, at_once=runs)


@pytest.mark.parametrize(("shape", "puts"), [(TINY, 3), (FOUR, 5), (REVIEW, 5)])
async def test_a_small_run_takes_exactly_so_many_calls_and_units(shape: Shape, puts: int) -> None:
    found = await counted(shape)
    assert found.meter.calls == Counter({**SUBMIT, "PutItem": puts, **dict.fromkeys(A_BATCH, 1)})
    assert writes(found) == puts
    assert found.meter.write_units == {"PutItem": puts, "UpdateItem": 2}
    assert found.meter.index_units == {"PutItem": 3}  # listed as active, then as succeeded
    assert found.meter.read_units == {"GetItem": 1}
    assert (found.meter.queue_requests, found.meter.sent) == (4, 1)


async def test_ten_runs_that_share_an_invocation_share_its_calls_to_the_queue_and_give_their_slots_back_in_one() -> (
    None
):
    found = await counted(FOUR, runs=10)
    ours = {name: 10 * count for name, count in {**SUBMIT, "PutItem": 5}.items()}
    ours["UpdateItem"] = 10 + 1
    assert found.meter.calls == Counter({**ours, **dict.fromkeys(A_BATCH, 1)})
    assert found.invocations == {"api": 10, "worker": 1}


async def test_a_map_of_a_thousand_takes_a_record_for_each_batch_and_three_writes_of_the_run() -> None:
    found = await counted(WIDE)
    assert found.output == 1_000
    batches = found.invocations["fanout"]
    assert batches == 100
    assert found.meter.calls["PutItem"] == batches + 3
    assert found.meter.calls["GetItem"] == 2 * batches + 2
    assert (found.meter.calls["StartExecution"], found.meter.calls["Query"]) == (1, 1)


async def test_a_step_of_a_long_chain_takes_the_units_of_one_of_a_short_chain() -> None:
    units = {}
    for length in (50, 400):
        found = await counted(chain(length))
        units[length] = (found.meter.write_units.total() + found.meter.index_units.total()) / length
    assert units[400] <= 1.2 * units[50]


async def test_a_million_diamonds_cost_less_than_the_target_busy_and_idle() -> None:
    idle, busy = await counted(FOUR), await counted(FOUR, runs=10)
    # A processor's time is measured on a quiet machine, by `python -m loadtest cost`; here it is what that was.
    idle, busy = (
        replace(found, processor_seconds={"all": 0.004 * found.runs}, log_bytes=1_200 * found.runs)
        for found in (idle, busy)
    )
    ours = {name: total(usage(found, boto3_counted=False)) for name, found in (("idle", idle), ("busy", busy))}
    assert ours["busy"] <= 9.4
    assert ours["idle"] <= 13
    theirs = standard(FOUR)
    assert theirs is not None
    assert total(theirs) >= 10 * ours["busy"]
    assert total(durable(FOUR)[0]) >= 4 * ours["busy"]


def test_the_others_cost_what_their_price_pages_say_of_a_diamond() -> None:
    theirs, fast = standard(FOUR), express(FOUR)
    assert theirs is not None
    assert fast is not None
    assert total(theirs) == pytest.approx(5 * 25 + 4 * 0.2 + 1)
    assert total(fast) == pytest.approx(3.1, abs=0.05)
    assert [round(total(used)) for used in durable(FOUR)] == [42, 67]


def test_what_others_can_not_do_has_no_price() -> None:
    assert standard(chain(10_000)) is None  # 50,000 events of a history
    assert express(chain(10_000)) is None  # a thousand seconds
    assert standard(chain(1_000)) is not None


def test_dollars_are_amounts_times_prices_and_every_part_has_a_price() -> None:
    assert set(PRICES) == set(Part)
    assert dollars({Part.WRITES: 7.0, Part.READS: 0.0}) == {Part.WRITES: pytest.approx(4.375)}


def test_a_request_to_a_queue_is_billed_for_each_64_kb_of_it() -> None:
    meter = Meter()
    for payload in (0, REQUEST_BYTES, REQUEST_BYTES + 1):
        meter.queued(payload, sent=1)
    told = meter.taken()
    assert (told.queue_requests, told.sent) == (4, 3)
    assert meter.taken().queue_requests == 0


def test_a_part_of_a_write_unit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.5 write units"):
        Meter().wrote("PutItem", table=0.5)


def test_the_scenario_keeps_calls_prices_and_dollars_of_every_shape_beside_the_others(tmp_path: Path) -> None:
    assert perform(cost, name="cost", kind="memory", folder=tmp_path / "it", quick=True, options={"length": 200})
    figures = read(tmp_path / "it")["figures"]
    assert list(figures["cases"]) == [
        *(f"{shape}, {load}" for shape in ("tiny", "diamond", "review") for load in ("idle", "busy")),
        "map, idle",
        "chain of 100, idle",
        "chain of 200, idle",
    ]
    assert figures["prices_of"]
    for case in figures["cases"].values():
        assert case["total"] == pytest.approx(sum(case["dollars_per_million"].values()))
        assert set(case["dollars_per_million"]) <= set(figures["prices"])
        assert len(case["others"]) == 4
    page = write([tmp_path / "it"], tmp_path / "page").read_text(encoding="utf-8")
    assert f"on demand, {figures['prices_of']}" in page
    assert "| DynamoDB, writes | 0.000000625 | write unit, 1 KB | 6.1 | 3.81 | 7 | 4.38 |" in page
    assert "| 1 × API Gateway, 5 × Step Functions, transitions, 4 × Lambda, requests | 126.80 |" in page
