"""Batches: many submits in one call, each accepted or refused separately."""

from __future__ import annotations

from fanfold.engine.errors import InfrastructureError
from fanfold.engine.payload import Json
from fanfold.service.api import views
from fanfold.service.api.access import Caller
from fanfold.service.api.batch_submit import Outcome, submit_many
from fanfold.service.api.handlers.context import Context
from fanfold.service.api.handlers.runs import submission_of
from fanfold.service.api.problems import INTERNAL, Refused, count_refusal, problem_of
from fanfold.service.api.request_models import BatchBody, SubmitBody
from fanfold.service.api.requests import Request, body_as, value_as
from fanfold.service.api.response_models import BatchAccepted, BatchRefused, BatchResults, ProblemView
from fanfold.service.api.responses import Answer
from fanfold.service.api.submit import Submission, Submitted
from fanfold.service.api.tickets import Tickets
from fanfold.service.telemetry.reporting import logger


async def submit(context: Context, caller: Caller, request: Request) -> Answer:
    """Accept up to 100 runs. What is wrong with one is its own result and spoils no other.

    With an `Idempotency-Key`, run i has the key `key/i`: a repeat of the batch takes up what is missing.
    """
    key = request.idempotency_key()
    items: list[Json] = list(body_as(BatchBody, request).runs)
    tickets = await context.tickets.open()
    outcomes: dict[int, Outcome] = {}
    asked: dict[int, Submission] = {}
    for position, item in enumerate(items):
        try:
            asked[position] = _submission(context, caller, item, None if key is None else f"{key}/{position}")
        except Refused as refused:
            outcomes[position] = refused
    submitted = await submit_many(context.submitter, list(asked.values()))
    outcomes |= dict(zip(asked, submitted, strict=True))
    results = [_result(outcomes[position], tickets if caller.reads else None) for position in range(len(items))]
    return Answer(content=BatchResults(results=results), spill_prefix=f"{caller.tenant}/lists")


def _submission(context: Context, caller: Caller, item: Json, key: str | None) -> Submission:
    """One run of the batch. Raises `Refused`."""
    context.rate.take(caller.tenant, monotonic=context.services.clock.monotonic())
    body = value_as(SubmitBody, item)
    return submission_of(body, caller, sent=item, key=key)


def _result(outcome: Outcome, tickets: Tickets | None) -> BatchAccepted | BatchRefused:
    if isinstance(outcome, Submitted):
        return BatchAccepted(
            status=200 if outcome.replayed else 202, run=views.accepted(outcome.run, tickets, outcome.estimate)
        )
    count_refusal(outcome)
    problem = problem_of(outcome)
    if problem is INTERNAL:
        logger().error("a run of a batch could not be accepted", exc_info=outcome)
    elif isinstance(outcome, InfrastructureError):
        logger().warning("a run of a batch was not accepted", extra={"error": repr(outcome)})
    content = problem.content()
    if "Retry-After" in problem.headers:
        content["retry_after"] = int(problem.headers["Retry-After"])
    return BatchRefused(status=problem.status, problem=ProblemView.model_validate(content))
