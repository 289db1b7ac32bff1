"""Workflows: register a version, read, list."""

from __future__ import annotations

from functools import partial

from fanfold.engine.errors import InvalidCursor, InvalidDocument, NotFound
from fanfold.engine.language.document_check import WORKFLOW_NAME, check
from fanfold.engine.ports import Registered
from fanfold.service.api import cursors
from fanfold.service.api.access import Caller
from fanfold.service.api.documents import document_of
from fanfold.service.api.handlers.context import Context
from fanfold.service.api.problems import invalid_workflow
from fanfold.service.api.request_models import ListQuery, WorkflowQuery
from fanfold.service.api.requests import Request, query_as
from fanfold.service.api.response_models import WorkflowList, WorkflowSummary, WorkflowVersion, WorkflowView
from fanfold.service.api.responses import Answer
from fanfold.service.task_modules import load_tasks
from fanfold.tasks import registry


async def register(context: Context, caller: Caller, request: Request, *, name: str) -> Answer:
    """Make this document the current version of a workflow: 201 for a new version, 200 for one that was there."""
    settings = context.services.settings
    load_tasks(settings)
    try:
        document = document_of(request)
        # For every document, because a wrong one may have any size.
        workflow = await context.services.aside(
            partial(
                check,
                document,
                name=name,
                tasks=registry.names(chaos=settings.chaos),
                not_loaded=registry.not_loaded(),
                classes={name: limits.max_step_seconds for name, limits in settings.classes.items()},
            )
        )
    except InvalidDocument as error:
        raise invalid_workflow(error.problems) from error
    stored, new = await context.services.catalog.register(
        caller.tenant,
        Registered(name=name, version=workflow.version, document=document, created_at=context.services.clock.now()),
    )
    return Answer(
        status=201 if new else 200,
        content=WorkflowSummary(name=stored.name, version=stored.version, created_at=stored.created_at),
    )


async def show(context: Context, caller: Caller, request: Request, *, name: str) -> Answer:
    """A workflow's document: its current version, or the one named; and which versions there are."""
    query = query_as(WorkflowQuery, request)
    found = await _found(context, caller.tenant, name, query.version)
    if found is None:
        of = "" if query.version is None else f" of version {query.version!r}"
        raise NotFound(f"there is no workflow {name[:100]!r}{of}")
    versions = await context.services.catalog.versions(caller.tenant, name)
    content = WorkflowView(
        name=found.name,
        version=found.version,
        created_at=found.created_at,
        document=found.document,
        versions=[WorkflowVersion(version=version, created_at=at) for version, at in versions],
    )
    return Answer(content=content, spill_prefix=f"{caller.tenant}/lists")


async def listing(context: Context, caller: Caller, request: Request) -> Answer:
    """The current version of every workflow, by name."""
    query = query_as(ListQuery, request)
    of = f"workflows\0{caller.tenant}"
    after = None if query.cursor is None else cursors.decode(query.cursor, of)
    if after is not None and not WORKFLOW_NAME.fullmatch(after):
        raise InvalidCursor("the cursor is broken")
    found = await context.services.catalog.names(caller.tenant, limit=query.limit + 1, after=after)
    shown = found[: query.limit]
    content = WorkflowList(
        workflows=[WorkflowSummary(name=item.name, version=item.version, created_at=item.created_at) for item in shown],
        next_cursor=cursors.encode(shown[-1].name, of) if len(found) > len(shown) else None,
    )
    return Answer(content=content, spill_prefix=f"{caller.tenant}/lists")


async def _found(context: Context, tenant: str, name: str, version: str | None) -> Registered | None:
    # A text that can't be a name is not read, because it may be no valid key.
    if not WORKFLOW_NAME.fullmatch(name):
        return None
    catalog = context.services.catalog
    return await (catalog.current(tenant, name) if version is None else catalog.version(tenant, name, version))
