"""The payloads of one run that are too big for its record: stored before they are named, loaded when needed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fanfold.engine.errors import NewerSchema, NotFound, PayloadLost, Unreadable
from fanfold.engine.payload import BlobRef, Json, Loaded, Lost, SealedStep, Value, ValuesMissing
from fanfold.engine.ports import Blobs, Clock, RunStore
from fanfold.engine.record.run import Run, StepState
from fanfold.engine.tenant import checked_tenant
from fanfold.service.retrying import AT_ONCE, WHILE_LEGIBLE, insist

KEPT_BYTES = 32_000_000
"""How much of a run's payloads a worker keeps in memory; past that it forgets them and loads again."""

Result = TypeVar("Result")


def payload_key(tenant: str, run_id: str, submission: str, name: str) -> str:
    """Where a payload lies: below its tenant, its run and its submission (R1)."""
    return f"{checked_tenant(tenant)}/{run_id}/{submission}/{name}"


class Payloads:
    """What has been loaded or stored for one run.

    A `patient` call goes on through infrastructure faults until its caller is cancelled, which
    the end of the lease does; other calls raise them.
    """

    def __init__(self, runs: RunStore, blobs: Blobs, clock: Clock) -> None:
        self._runs = runs
        self._blobs = blobs
        self._clock = clock
        self._loaded: dict[str, Json] = {}
        self._bytes = 0

    async def provide(self, run: Run, ask: Callable[[Loaded], Result], *, patient: bool = False) -> Result:
        """What a pure function answers about a run once it has been given every payload and checkpoint it misses."""
        needed: dict[str, Any] = {}
        while True:
            try:
                return ask({**self._loaded, **needed} if needed else self._loaded)
            except ValuesMissing as missing:
                for ref in missing.refs:
                    if ref.key in needed:
                        continue
                    try:
                        if isinstance(ref, BlobRef):
                            needed[ref.key] = await self.load(ref, patient=patient)
                        else:
                            needed |= await self._checkpoints(run, patient)
                    except NotFound as error:
                        # Who asks says what follows from that: a step without its input fails, and no other.
                        sealed = [each for each in missing.refs if isinstance(each, SealedStep)]
                        lost = [ref] if isinstance(ref, BlobRef) else sealed
                        needed |= dict.fromkeys((each.key for each in lost), Lost(detail=str(error)))

    async def load(self, value: Value, *, patient: bool = False) -> Json:
        """The JSON a value stands for. Raises `PayloadLost` when its object is gone, or is not what was stored."""
        if not isinstance(value, BlobRef):
            return value
        if value.key not in self._loaded:
            self._keep(value, await self._tried(lambda: self._blobs.get(value), patient))
        return self._loaded[value.key]

    async def store(self, run: Run, name: str, value: Json, data: bytes, *, patient: bool = False) -> BlobRef:
        """Store a payload under a name that is used once."""
        key = payload_key(run.tenant, run.id, run.submission, name)
        ref = await self._tried(lambda: self._blobs.put(key, data), patient)
        self._keep(ref, value)
        return ref

    async def _checkpoints(self, run: Run, patient: bool) -> dict[str, StepState]:
        """Every sealed step of a run, by the key it is asked for."""
        try:
            segments = await self._tried(lambda: self._runs.segments(run), patient)
        except NewerSchema:
            raise
        except Unreadable as error:
            raise PayloadLost(str(error)) from error
        return {SealedStep(step=name).key: state for segment in segments for name, state in segment.steps.items()}

    def _keep(self, ref: BlobRef, value: Json) -> None:
        if self._bytes + ref.bytes > KEPT_BYTES:
            self._loaded.clear()
            self._bytes = 0
        self._loaded[ref.key] = value
        self._bytes += ref.bytes

    async def _tried(self, call: Callable[[], Coroutine[Any, Any, Result]], patient: bool) -> Result:
        return await insist(self._clock, call, WHILE_LEGIBLE if patient else AT_ONCE)
