"""Converts records to the API's models: runs and events."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final

from fanfold.engine.admission.estimates import Estimate
from fanfold.engine.language.maps import MapState, Progress, Via
from fanfold.engine.payload import BlobRef, Json, Value
from fanfold.engine.ports import Blobs, IndexKey, RunKey
from fanfold.engine.record.journal import Entry
from fanfold.engine.record.run import Failure, Run, StepState
from fanfold.service.api.problems import too_large
from fanfold.service.api.response_models import (
    Accepted,
    BigValue,
    ErrorView,
    EstimateView,
    EventView,
    ItemErrorView,
    Links,
    ListedRun,
    MapView,
    RunSummary,
    RunView,
    StepView,
)
from fanfold.service.api.serialization import Verbatim
from fanfold.service.api.tickets import Tickets

URL_SECONDS = 300
"""Seconds for which a presigned URL is valid."""
UNREADABLE: Final = "unreadable"
"""The status, and the error's type, of a listed run whose record can't be read."""
MAX_INLINE_BYTES = 50_000_000
"""The most bytes of large values in one answer: the API's memory holds them several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payloads:
    """How large values are shown: with `inline` the values, else references with a URL."""

    blobs: Blobs
    inline: bool

    async def shown(self, values: Sequence[Value]) -> list[Json | BigValue | Verbatim]:
        """The values for an answer; refused with 413 if they are too large together."""
        total = sum(value.bytes for value in values if isinstance(value, BlobRef))
        if self.inline and total > MAX_INLINE_BYTES:
            raise too_large(
                f"inline: the values have {total:,} bytes; {MAX_INLINE_BYTES:,} is the most: "
                "read them by their references, or fewer of them (steps)"
            )
        return list(await asyncio.gather(*(self._one(value) for value in values)))

    async def _one(self, value: Value) -> Json | BigValue | Verbatim:
        if not isinstance(value, BlobRef):
            return value
        if self.inline:
            return Verbatim(await self.blobs.raw(value))
        url = await self.blobs.presign(value, seconds=URL_SECONDS)
        return BigValue(ref=value.key, bytes=value.bytes, sha256=value.sha256, url=url)


def links(run: RunKey, tickets: Tickets | None) -> Links:
    """A run's links, relative to the API's base URL; without `tickets` there is no stream."""
    here = f"v1/runs/{run.run_id}"
    stream = None if tickets is None else f"v1/stream/{tickets.ticket(run)}"
    return Links(here=here, events=f"{here}/events", stream=stream)


def accepted(run: Run, tickets: Tickets | None, estimate: Estimate | None = None) -> Accepted:
    """The answer to a submit."""
    return Accepted(
        id=run.id,
        status=run.status,
        workflow=run.workflow,
        version=run.workflow_version,
        created_at=run.created_at,
        links=links(RunKey(tenant=run.tenant, run_id=run.id), tickets),
        estimate=None if estimate is None else EstimateView(**asdict(estimate)),
    )


def summary(run: Run, tickets: Tickets) -> RunSummary:
    """A run without its payloads and steps."""
    return RunSummary(
        id=run.id,
        workflow=run.workflow,
        version=run.workflow_version,
        status=run.status,
        reason=None if run.reason is None else run.reason.value,
        error=_error(run.error),
        class_name=run.class_name,
        lane=run.lane,
        tags=dict(run.tags),
        created_at=run.created_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        epoch=run.epoch,
        links=links(RunKey(tenant=run.tenant, run_id=run.id), tickets),
    )


def listed(run: Run | IndexKey, cursor: str, tickets: Tickets) -> ListedRun:
    """A run in a list, with the cursor after it. For an unreadable run, the facts in the index."""
    if isinstance(run, Run):
        return ListedRun(**_fields(summary(run, tickets)), cursor=cursor)
    return ListedRun(
        id=run.run_id,
        workflow="",
        version="",
        status=UNREADABLE,
        reason=None,
        error=ErrorView(type=UNREADABLE, message="this version of the service can't read the run's record"),
        class_name="",
        lane="",
        tags={},
        created_at=run.created_at,
        started_at=None,
        finished_at=None,
        epoch=0,
        links=links(RunKey(tenant=run.tenant, run_id=run.run_id), tickets),
        cursor=cursor,
    )


async def run_view(
    run: Run,
    *,
    payloads: Payloads,
    tickets: Tickets,
    step_names: Sequence[str],
    only: Collection[str] | None = None,
    progress: Mapping[str, Progress] = MappingProxyType({}),
) -> RunView:
    """A whole run with all steps of `step_names`, also those that have not begun; `only` narrows them.

    `progress` has the counts of open maps.
    """
    steps: Mapping[str, StepState] = {**{name: StepState() for name in step_names}, **run.steps}
    chosen = {name: state for name, state in steps.items() if only is None or name in only}
    given, output, *outputs = await payloads.shown(
        [run.input, run.output, *(state.output for state in chosen.values())]
    )
    return RunView(
        **_fields(summary(run, tickets)),
        input=given,
        output=output,
        steps={
            name: _step(state, shown, progress.get(name))
            for (name, state), shown in zip(chosen.items(), outputs, strict=True)
        },
    )


def event(entry: Entry) -> EventView:
    """A journal entry as an event: its details are beside its number, time and type."""
    about: dict[str, Json] = {}
    if entry.step is not None:
        about["step"] = entry.step
    if entry.attempt is not None:
        about["attempt"] = entry.attempt
    for name, value in (entry.data or {}).items():
        if name not in EventView.model_fields:
            about.setdefault(name, value)
    return EventView(seq=entry.seq, at=entry.at, type=entry.type.value, **about)


def without_content(view: RunView) -> RunView:
    """The run for a token without `read`: status only, no inputs, outputs and errors."""
    steps = {
        name: step.model_copy(
            update={
                "output": None,
                "error": None,
                "map": None if step.map is None else step.map.model_copy(update={"errors": []}),
            }
        )
        for name, step in view.steps.items()
    }
    links = view.links.model_copy(update={"stream": None})
    return view.model_copy(update={"input": None, "output": None, "error": None, "steps": steps, "links": links})


def _step(state: StepState, output: Json | BigValue | Verbatim, progress: Progress | None) -> StepView:
    return StepView(
        status=state.status.value,
        attempts=state.attempts,
        started_at=state.started_at,
        finished_at=state.finished_at,
        output=output,
        error=_error(state.error),
        map=None if state.map is None else _map(state.map, progress),
    )


def _map(state: MapState, progress: Progress | None) -> MapView:
    if state.failed is not None:
        progress = Progress(done=state.items, failed=state.failed)
    return MapView(
        items=state.items,
        via="inline" if state.via is Via.INLINE else "stepfunctions",
        done=None if progress is None else progress.done,
        failed=None if progress is None else progress.failed,
        errors=[ItemErrorView(index=e.index, type=e.type, message=e.message) for e in state.errors],
    )


def _error(failure: Failure | None) -> ErrorView | None:
    return None if failure is None else ErrorView(type=failure.type, message=failure.message)


def _fields(view: RunSummary) -> dict[str, Any]:
    return {name: getattr(view, name) for name in type(view).model_fields}
