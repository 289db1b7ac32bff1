"""Fork: a new run that takes over an old run's checkpoints up to a step (R10)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from fanfold.engine.admission.lanes import UNBOUND, LaneLimit, LaneRequest
from fanfold.engine.errors import InvalidDocument, LimitExceeded, ValidationIssue
from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import Json
from fanfold.engine.record.operations import Operation, check_operation
from fanfold.engine.record.run import Run
from fanfold.engine.record.steps import Steps
from fanfold.engine.rules.fork import TakenOver, checkpoints
from fanfold.service.api.submit import Submission, Submitted, Submitter
from fanfold.service.payloads import Payloads
from fanfold.service.wiring import Services
from fanfold.service.workflow_cache import WorkflowCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """The parameters of a fork. The default `version` is the run's own; `input` counts only with `new_input`."""

    from_step: str
    version: str | None
    input: Json
    new_input: bool
    request_hash: str
    key: str | None
    bound: LaneLimit = UNBOUND


class Forker:
    """Creates forks. A fork is a submit whose checkpoints are an immutable object of the new run."""

    def __init__(self, services: Services, workflows: WorkflowCache, submitter: Submitter) -> None:
        self._services = services
        self._workflows = workflows
        self._submitter = submitter

    async def fork(self, source: Run, asked: Fork) -> Submitted:
        """The new run. Raises what a submit raises, and `InvalidDocument` for a step the version has not."""
        check_operation(Operation.FORK, source)
        old = await self._workflows.get(source.tenant, source.workflow, source.workflow_version)
        version = asked.version or source.workflow_version
        new = await self._workflows.get(source.tenant, source.workflow, version)
        if asked.from_step not in new.steps:
            detail = f"there is no step {asked.from_step[:80]!r} in this version"
            raise InvalidDocument((ValidationIssue(pointer="/from_step", detail=detail),))
        fork = await self._taken_over(source, asked.from_step, old, new)
        return await self._submitter.submit(
            Submission(
                tenant=source.tenant,
                workflow=source.workflow,
                workflow_version=version,
                input=asked.input if asked.new_input else source.input,
                # The source's lane, or the best lane that the caller may use.
                urgency=LaneRequest(usual=source.lane),
                bound=asked.bound,
                tags=source.tags,
                request_hash=asked.request_hash,
                # A client's key contains no NUL, so a fork never has the key of a submit.
                key=None if asked.key is None else f"fork\0{source.id}\0{asked.key}",
                fork=fork,
            )
        )

    async def _taken_over(self, source: Run, from_step: str, old: Workflow, new: Workflow) -> TakenOver:
        since = source.created_at if source.origin is None else source.origin.since
        days = self._services.settings.max_life_days
        if since + timedelta(days=days) <= self._services.clock.now():
            raise LimitExceeded("run.life_days", f"the run began more than {days} days ago; submit it anew")
        payloads = Payloads(self._services.runs, self._services.blobs, self._services.clock)
        kept = await payloads.provide(
            source, lambda loaded: checkpoints(Steps(source, old), old, new, from_step, loaded)
        )
        return TakenOver(run_id=source.id, from_step=from_step, kept=kept, since=since)
