"""Operations: cancel, pause, resume, signal, redrive, fork."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from fanfold.engine.errors import LimitExceeded
from fanfold.engine.payload import Json, Value, dump_payload, fingerprint
from fanfold.engine.record.operations import Operation
from fanfold.engine.record.run import Run
from fanfold.engine.rules.events import (
    CancelAsked,
    Keyed,
    OperatorRequest,
    PauseAsked,
    RedriveAsked,
    ResumeAsked,
    Signalled,
)
from fanfold.engine.rules.kinds.wait_step import check_signal
from fanfold.engine.rules.operations import replayed
from fanfold.service.api import views
from fanfold.service.api.access import Caller
from fanfold.service.api.forking import Fork
from fanfold.service.api.handlers.context import Context
from fanfold.service.api.handlers.runs import shown
from fanfold.service.api.problems import invalid_parameter, malformed
from fanfold.service.api.request_models import ForkBody
from fanfold.service.api.requests import Request, value_as
from fanfold.service.api.response_models import SignalReceipt
from fanfold.service.api.responses import Answer
from fanfold.service.payloads import payload_key

MAX_SIGNAL_BYTES = 256 * 1024
"""A signal's payload as compact JSON."""
INLINE_SIGNAL_BYTES = 1024
"""Bytes above which a payload goes to the bucket: a run may hold a hundred of them (R10)."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


async def cancel(context: Context, caller: Caller, request: Request, *, id: str) -> Answer:
    """Cancel a run. A running one is told at its next renewal at the latest, and has then ended within seconds."""
    return await _moved(context, caller, await context.run(caller.tenant, id), CancelAsked(by=caller.owner))


async def pause(context: Context, caller: Caller, request: Request, *, id: str) -> Answer:
    """Pause a run: no new step starts, deadlines stand still; what runs goes on to its end."""
    return await _moved(context, caller, await context.run(caller.tenant, id), PauseAsked(by=caller.owner))


async def resume(context: Context, caller: Caller, request: Request, *, id: str) -> Answer:
    """Let a paused run go on. Its deadlines move by the length of the pause, those of `until` do not."""
    return await _moved(context, caller, await context.run(caller.tenant, id), ResumeAsked(by=caller.owner))


async def redrive(context: Context, caller: Caller, request: Request, *, id: str) -> Answer:
    """Let a failed or cancelled run go on from there; what succeeded keeps its result."""
    keyed = _keyed(request, Operation.REDRIVE, "", None)
    return await _moved(
        context, caller, await context.run(caller.tenant, id), RedriveAsked(by=caller.owner, keyed=keyed)
    )


async def signal(context: Context, caller: Caller, request: Request, *, id: str, name: str) -> Answer:
    """Give a run a signal, with any JSON as its payload: the output of the wait that takes it."""
    if not _NAME.fullmatch(name):
        raise invalid_parameter("name", "a signal's name is a-z, then up to 62 of a-z, 0-9, _ and -")
    value = request.json() if request.body.strip() else None
    run = await context.run(caller.tenant, id)
    asked = Signalled(by=caller.owner, name=name, payload=None, keyed=_keyed(request, Operation.SIGNAL, name, value))
    # A repeat gets the first answer, whatever has happened to the run. Refused payloads are not stored.
    if replayed(run, asked) is None:
        check_signal(run, await context.workflows.of(run), name)
        asked = replace(asked, payload=await _stored(context, run, value))
    done = await context.control.carry_out(run, asked)
    return _answer(done.changed, SignalReceipt(seq=done.seq), keyed=asked.keyed is not None)


async def fork(context: Context, caller: Caller, request: Request, *, id: str) -> Answer:
    """Start a new run that takes over everything of this one that is not downstream of `from_step`."""
    key = request.idempotency_key()
    context.rate.take(caller.tenant, monotonic=context.services.clock.monotonic())
    sent = request.json()
    body = value_as(ForkBody, sent)
    tickets = await context.tickets.open()
    asked = Fork(
        from_step=body.from_step,
        version=body.version,
        input=body.input,
        new_input="input" in body.model_fields_set,
        request_hash=fingerprint(sent),
        key=key,
        bound=caller.bound,
    )
    done = await context.forker.fork(await context.run(caller.tenant, id), asked)
    answer = views.accepted(done.run, tickets if caller.reads else None, done.estimate)
    headers = {"Location": answer.links.here} | ({"Idempotent-Replayed": "true"} if done.replayed else {})
    return Answer(status=200 if done.replayed else 202, content=answer, headers=headers)


async def _moved(context: Context, caller: Caller, run: Run, asked: OperatorRequest) -> Answer:
    """202 with the run, as far as the caller may read it; 200 if nothing changed."""
    done = await context.control.carry_out(run, asked)
    answer = await shown(context, caller, done.run)
    keyed = isinstance(asked, RedriveAsked) and asked.keyed is not None
    return _answer(done.changed, answer.content, keyed=keyed, spill_prefix=answer.spill_prefix)


def _answer(changed: bool, content: object, *, keyed: bool, spill_prefix: str = "") -> Answer:
    headers = {"Idempotent-Replayed": "true"} if keyed and not changed else {}
    return Answer(status=202 if changed else 200, content=content, headers=headers, spill_prefix=spill_prefix)


def _keyed(request: Request, operation: Operation, name: str, said: Json) -> Keyed | None:
    """The request's idempotency key, for this operation alone, and what the request says."""
    key = request.idempotency_key()
    if key is None:
        return None
    return Keyed(key=_short(f"{operation}\0{key}".encode()), content=_short(f"{name}\0{fingerprint(said)}".encode()))


def _short(data: bytes) -> str:
    """96 bits of a hash: a run remembers at most a hundred of them."""
    return hashlib.sha256(data).hexdigest()[:24]


async def _stored(context: Context, run: Run, value: Json) -> Value:
    try:
        data = dump_payload(value)
    except (ValueError, TypeError) as error:
        raise malformed(str(error)) from error
    if len(data) > MAX_SIGNAL_BYTES:
        raise LimitExceeded("signal_bytes", f"a signal's payload has at most {MAX_SIGNAL_BYTES:,} bytes")
    if len(data) <= INLINE_SIGNAL_BYTES:
        return value
    # The same payload is always the same object, so an operation that loses leaves at most one.
    name = f"signals/{hashlib.sha256(data).hexdigest()}"
    return await context.services.blobs.put(payload_key(run.tenant, run.id, run.submission, name), data)
