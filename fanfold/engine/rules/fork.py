"""What a fork takes over: the checkpoints of everything that does not hang on the step it begins at (R10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import BlobRef, Json, Loaded
from fanfold.engine.record.run import Failure, ForkOrigin, StepState, StepStatus
from fanfold.engine.record.steps import Steps
from fanfold.engine.rules.operations import downstream, unfinished

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """What a fork that is asked for takes over; what is `kept` is stored once it has its slot. See `ForkOrigin`."""

    run_id: str
    from_step: str
    kept: Json
    since: datetime

    def stored(self, checkpoints: BlobRef) -> ForkOrigin:
        """The origin of the fork, once its checkpoints lie there."""
        return ForkOrigin(run_id=self.run_id, from_step=self.from_step, checkpoints=checkpoints, since=self.since)


def checkpoints(source: Steps, old: Workflow, new: Workflow, from_step: str, loaded: Loaded) -> Json:
    """The settled steps of a run that a fork keeps, as JSON.

    `source` are the run's steps and `old` its workflow, `new` the fork's. Left out is `from_step`
    and what is downstream of it, and what a redrive would begin again. Raises `ValuesMissing`
    for a checkpoint that is not loaded.
    """
    again = {from_step, *downstream(new, [from_step]), *unfinished(old, source)}
    kept = [name for name in new.steps if name in old.steps and name not in again and source[name].settled]
    return {name: _packed(source.checkpoint(name, loaded)) for name in kept}


def taken_over(packed: Json, workflow: Workflow) -> Mapping[str, StepState]:
    """The states of a fork's steps as `checkpoints` packed them. They count no attempt of the fork's own."""
    return {name: _unpacked(packed[name]) for name in workflow.steps if name in packed}


def _packed(state: StepState) -> Json:
    output = state.output
    packed = {
        "status": state.status.value,
        "started": _ms(state.started_at),
        "finished": _ms(state.finished_at),
        "error": None if state.error is None else [state.error.type, state.error.message],
    }
    if isinstance(output, BlobRef):
        return packed | {"ref": [output.key, output.bytes, output.sha256]}
    return packed | {"output": output}


def _unpacked(packed: Json) -> StepState:
    error = packed["error"]
    if "ref" in packed:
        key, size, sha256 = packed["ref"]
        output = BlobRef(key=key, bytes=size, sha256=sha256)
    else:
        output = packed["output"]
    return StepState(
        status=StepStatus(packed["status"]),
        started_at=_moment(packed["started"]),
        finished_at=_moment(packed["finished"]),
        output=output,
        error=None if error is None else Failure(type=error[0], message=error[1]),
    )


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round((moment - _EPOCH).total_seconds() * 1000)


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else _EPOCH + timedelta(milliseconds=ms)
