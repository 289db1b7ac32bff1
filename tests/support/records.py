"""Arbitrary records and messages for property tests, and the record most runs end as."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fanfold.engine.payload import BlobRef, Json, Value
from fanfold.engine.record.journal import Entry, EventType
from fanfold.engine.record.messages import Envelope, Message, Wake
from fanfold.engine.record.run import (
    TERMINAL,
    Failure,
    ForkOrigin,
    IdempotencyRecord,
    Reason,
    Run,
    Sealed,
    Signal,
    Slot,
    Status,
    StepState,
    StepStatus,
)
from fanfold.engine.tenant import TENANT

CREATED = datetime(2026, 11, 30, 12, 0, 0, 123_000, tzinfo=UTC)


def finished_diamond() -> Run:
    """A diamond after its last commit, with ids, hashes and outputs as long as real ones."""

    def at(ms: int) -> datetime:
        return CREATED + timedelta(milliseconds=ms)

    outputs = {
        "seed": {
            "text": "Rayleigh scattering favours short waves.",
            "usage": {"input_tokens": 12, "output_tokens": 31},
        },
        "left": {"text": "Blue light scatters most.", "usage": {"input_tokens": 57, "output_tokens": 22}},
        "right": {"text": "Violet is absorbed higher up.", "usage": {"input_tokens": 57, "output_tokens": 19}},
        "combine": {"text": "So the sky is blue.", "usage": {"input_tokens": 113, "output_tokens": 43}},
    }
    times = {"seed": (41, 553), "left": (554, 1_103), "right": (554, 1_188), "combine": (1_190, 1_702)}
    journal = [
        (0, EventType.RUN_ACCEPTED, None),
        (40, EventType.RUN_CLAIMED, None),
        (41, EventType.STEP_STARTED, "seed"),
        (553, EventType.STEP_SUCCEEDED, "seed"),
        (554, EventType.STEP_STARTED, "left"),
        (554, EventType.STEP_STARTED, "right"),
        (1_103, EventType.STEP_SUCCEEDED, "left"),
        (1_188, EventType.STEP_SUCCEEDED, "right"),
        (1_190, EventType.STEP_STARTED, "combine"),
        (1_702, EventType.STEP_SUCCEEDED, "combine"),
        (1_703, EventType.RUN_SUCCEEDED, None),
    ]
    return Run(
        tenant="acme-industries",
        id="Zr8sVb3kQ0mJx1uYt7WnCA",
        submission="q7Zk1PfXv0Lw9RbT",
        workflow="diamond",
        workflow_version="sha256:9f2c4e61b7d80a35c1e94f7b2d6a8035e7c9104bd2f86a3ce5170b94d8f23a6c",
        class_name="model",
        lane="normal",
        input={"prompt": "Why is the sky blue?"},
        tags={"team": "search"},
        request_hash="3b7e10c9f4a2d86573e01c9bb84fd26a90c5e7318d4b62fa07e95c1d3f8a6b24",
        created_at=CREATED,
        deadline=at(86_400_000),
        slot=Slot(shard=0, hour=498_900),
        status=Status.SUCCEEDED,
        output=outputs["combine"],
        version=6,
        write_id="Hs2_yQ8dMz-4KcVn",
        epoch=1,
        owner="b0TgWq5uXe7RjLpA",
        lease_until=at(60_040),
        started_at=at(40),
        finished_at=at(1_703),
        expires_at=at(1_703 + 30 * 86_400_000),
        steps={
            name: StepState(
                status=StepStatus.SUCCEEDED,
                attempts=1,
                started_at=at(began),
                finished_at=at(ended),
                output=outputs[name],
            )
            for name, (began, ended) in times.items()
        },
        journal=tuple(
            Entry(
                seq=seq,
                at=at(ms),
                type=kind,
                step=step,
                attempt=1 if step else None,
                data=None if step else {"epoch": 1},
            )
            for seq, (ms, kind, step) in enumerate(journal, start=1)
        ),
    )


def values() -> SearchStrategy[Value]:
    """Any payload: JSON with awkward numbers and strings, references, and objects that only look like references."""
    return json_values() | blob_refs() | st.builds(_look_alike, blob_refs()) | st.lists(json_values(), max_size=3)


def json_values() -> SearchStrategy[Json]:
    """Any JSON: lone surrogates, huge integers and every finite float in it."""
    leaves = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.integers(min_value=10**300, max_value=10**301)
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts()
    )
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3), max_leaves=6
    )


def texts() -> SearchStrategy[str]:
    """Awkward strings: a lone surrogate (two that make a pair are one character in JSON), controls, all of UTF-8."""
    return st.text('aB9é€😀\x00\n"\\#$\ud800', max_size=8)


def blob_refs() -> SearchStrategy[BlobRef]:
    """References to objects."""
    return st.builds(BlobRef, key=texts(), bytes=st.integers(min_value=0), sha256=hashes())


def times() -> SearchStrategy[datetime]:
    """Moments of this century, in whole milliseconds."""
    return st.integers(0, 3_000_000_000_000).map(
        lambda ms: datetime(2000, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    )


def hashes() -> SearchStrategy[str]:
    """What stands where a hash should: in lower case as we write them, and anything else."""
    digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
    return digests | digests.map(lambda digest: f"sha256:{digest}") | digests.map(str.upper) | texts()


def ids() -> SearchStrategy[str]:
    """What stands where a token should: URL-safe base64, and anything else."""
    return st.text("ABCxyz019-_", min_size=16, max_size=16) | st.text("Aa0-_=+ /", max_size=17) | texts()


def runs() -> SearchStrategy[Run]:
    """Any record that keeps the record's rules."""
    return _runs()


def tenants() -> SearchStrategy[str]:
    """Any tenant's name, most of them short."""
    return st.text("abcZ1._-", min_size=1, max_size=8).filter(TENANT.fullmatch)


def messages() -> SearchStrategy[Message]:
    """Any message."""
    name, count = texts(), st.integers(min_value=0)
    wakes = st.builds(Wake, tenant=tenants(), run_id=name, submission=ids(), class_name=name, outages=count)
    return wakes | st.builds(
        Envelope,
        tenant=tenants(),
        run_id=name,
        submission=ids(),
        workflow=name,
        workflow_version=hashes(),
        class_name=name,
        lane=name,
        input=values(),
        tags=st.dictionaries(name, name, max_size=3),
        request_hash=hashes(),
        accepted_at=times(),
        deadline=times(),
        queue_deadline=st.none() | times(),
        slot=st.none() | _slots(),
        origin=st.none() | _origins(),
        outages=count,
    )


def _look_alike(ref: BlobRef) -> Json:
    return {"$ref": ref.key, "bytes": ref.bytes, "sha256": ref.sha256}


def _slots() -> SearchStrategy[Slot]:
    return st.builds(Slot, shard=st.integers(0, 9), hour=st.integers(0, 10**6))


def _origins() -> SearchStrategy[ForkOrigin]:
    return st.builds(ForkOrigin, run_id=texts(), from_step=texts(), checkpoints=blob_refs(), since=times())


def _faults() -> SearchStrategy[Failure | None]:
    return st.none() | st.builds(Failure, type=texts(), message=texts())


def _steps() -> SearchStrategy[StepState]:
    counts = st.integers(0, 5)
    moments = st.none() | times() | st.just(CREATED)
    missing = st.tuples(_faults(), moments).map(
        lambda drawn: {"error": drawn[0], "missing_since": drawn[0] and drawn[1]}
    )
    return st.tuples(
        st.builds(
            StepState,
            status=st.sampled_from(StepStatus),
            attempts=counts,
            failures=counts,
            interruptions=counts,
            started_at=moments,
            finished_at=moments,
            due_at=moments,
            output=values(),
        ),
        missing,
    ).map(lambda drawn: replace(drawn[0], **drawn[1]))


@st.composite
def _runs(draw: st.DrawFn) -> Run:
    steps = draw(st.dictionaries(texts(), _steps(), max_size=4))
    step_names = st.none() | texts() | (st.sampled_from(list(steps)) if steps else st.none())
    first = draw(st.integers(1, 10**6))
    journal = [
        Entry(
            seq=first + number,
            at=draw(times() | st.just(CREATED)),
            type=draw(st.sampled_from(EventType)),
            step=draw(step_names),
            attempt=draw(st.none() | st.integers(0, 9)),
            data=draw(st.none() | st.dictionaries(texts(), json_values(), max_size=2)),
            write_id=draw(st.none() | texts()),
        )
        for number in range(draw(st.integers(0, 4)))
    ]
    status = draw(st.sampled_from(Status))
    moments = st.none() | times()
    seqs = st.integers(1, 99)
    sealed = st.builds(
        Sealed, newest=st.text("abc#", min_size=1), last_seq=st.integers(1, 99), statuses=st.text(".sfkc")
    )
    return Run(
        tenant=draw(tenants()),
        id=draw(st.text("abcXYZ-_1#", min_size=1, max_size=22)),
        submission=draw(ids()),
        workflow=draw(texts()),
        workflow_version=draw(hashes()),
        class_name=draw(texts()),
        lane=draw(texts()),
        input=draw(values()),
        tags=draw(st.dictionaries(texts(), texts(), max_size=3)),
        request_hash=draw(hashes()),
        created_at=draw(times() | st.just(CREATED)),
        deadline=draw(times()),
        queue_deadline=draw(moments),
        slot=draw(st.none() | _slots()),
        status=status,
        reason=draw(st.none() | st.sampled_from(Reason)),
        error=draw(_faults()),
        output=draw(values()),
        version=draw(st.integers(1, 10**9)),
        write_id=draw(ids()),
        epoch=draw(st.integers(0, 10**6)),
        try_number=draw(st.integers(1, 99)),
        owner=draw(st.none() | ids()),
        lease_until=draw(moments),
        due_at=draw(moments),
        started_at=draw(moments),
        finished_at=draw(moments),
        expires_at=draw(moments) if status in TERMINAL else None,
        crashes=draw(st.integers(0, 9)),
        steps=steps,
        journal=tuple(journal),
        sealed=draw(st.just(Sealed()) | sealed),
        signals=tuple(draw(st.lists(st.builds(Signal, seq=seqs, name=texts(), payload=values()), max_size=2))),
        receipts=tuple(
            draw(st.lists(st.builds(IdempotencyRecord, key=texts(), content=texts(), seq=seqs), max_size=2))
        ),
        paused_at=draw(moments),
        cancel_requested=draw(st.booleans()),
        origin=draw(st.none() | _origins()),
    )
