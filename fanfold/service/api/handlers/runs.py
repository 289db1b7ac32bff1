"""Runs: submit, read, list."""

from __future__ import annotations

from fanfold.engine.admission.lanes import LaneRequest
from fanfold.engine.errors import Unreadable
from fanfold.engine.payload import Json, fingerprint
from fanfold.engine.record.run import Run
from fanfold.service.api import views
from fanfold.service.api.access import Caller
from fanfold.service.api.handlers.context import Context
from fanfold.service.api.listing import Filters, page
from fanfold.service.api.request_models import TAG_FILTER, RunQuery, RunsQuery, SubmitBody
from fanfold.service.api.requests import Request, query_as, value_as
from fanfold.service.api.response_models import RunList
from fanfold.service.api.responses import Answer
from fanfold.service.api.run_reader import whole
from fanfold.service.api.submit import Submission
from fanfold.service.maps import Maps


async def submit(context: Context, caller: Caller, request: Request) -> Answer:
    """Accept a run. With an `Idempotency-Key`, a repeat of the same body answers 200 with the run of the first."""
    key = request.idempotency_key()
    context.rate.take(caller.tenant, monotonic=context.services.clock.monotonic())
    sent = request.json()
    body = value_as(SubmitBody, sent)
    # Before anything is accepted, because an accepted run must not fail for lack of a link.
    tickets = await context.tickets.open()
    done = await context.submitter.submit(submission_of(body, caller, sent=sent, key=key))
    answer = views.accepted(done.run, tickets if caller.reads else None, done.estimate)
    headers = {"Location": answer.links.here}
    if done.replayed:
        headers["Idempotent-Replayed"] = "true"
    return Answer(status=200 if done.replayed else 202, content=answer, headers=headers)


def submission_of(body: SubmitBody, caller: Caller, *, sent: Json, key: str | None) -> Submission:
    """The submit of a caller. `sent` is the JSON that distinguishes a repeat from another request with the same key."""
    return Submission(
        tenant=caller.tenant,
        workflow=body.workflow,
        workflow_version=body.version,
        input=body.input,
        urgency=LaneRequest(lane=body.lane, priority=body.priority),
        bound=caller.bound,
        tags=body.tags,
        delay_seconds=float(body.delay),
        request_hash=fingerprint(sent),
        key=key,
    )


async def show(context: Context, caller: Caller, request: Request, *, id: str) -> Answer:
    """A run, as it is or (`wait`) as soon as it has ended."""
    query = query_as(RunQuery, request)
    run = await context.run_once(caller.tenant, id, until=lambda run: run.terminal, wait_seconds=query.wait)
    return await shown(context, caller, run, query)


async def shown(context: Context, caller: Caller, run: Run, query: RunQuery | None = None) -> Answer:
    """The answer with a run, narrowed by `query` and by the caller's scopes."""
    query = query or RunQuery()
    run = await whole(context.services, run)
    content = await views.run_view(
        run,
        payloads=views.Payloads(blobs=context.services.blobs, inline=query.inline),
        tickets=await context.tickets.open(),
        step_names=await _step_names(context, run),
        progress=await Maps(context.services).progress(run) if query.progress else {},
        only=None if query.steps is None else frozenset() if query.steps == ["none"] else frozenset(query.steps),
    )
    return Answer(content=content if caller.reads else views.without_content(content), spill_prefix=_prefix(run))


async def listing(context: Context, caller: Caller, request: Request) -> Answer:
    """Runs, newest first. A page may hold fewer than `limit` and still have a `next_cursor`."""
    query = query_as(RunsQuery, request)
    filters = Filters(
        statuses=frozenset(query.status), workflows=frozenset(query.workflow), tags=tuple(map(_tag, query.tag))
    )
    found = await page(
        context.services.runs,
        caller.tenant,
        filters,
        limit=query.limit,
        cursor=query.cursor,
        now=context.services.clock.now(),
    )
    tickets = await context.tickets.open()
    content = RunList(
        runs=[views.listed(run, cursor, tickets) for run, cursor in found.runs], next_cursor=found.next_cursor
    )
    return Answer(content=content, spill_prefix=f"{caller.tenant}/lists")


async def _step_names(context: Context, run: Run) -> tuple[str, ...]:
    """The steps of a run's workflow; the record has only those that have begun or settled."""
    try:
        workflow = await context.workflows.of(run)
    except Unreadable:
        return ()  # a run can be shown without its document
    return tuple(workflow.steps)


def _prefix(run: Run) -> str:
    return f"{run.tenant}/{run.id}/{run.submission}"


def _tag(text: str) -> tuple[str, str | None]:
    found = TAG_FILTER.fullmatch(text)
    return (text, None) if found is None else (found[1], found[2])
