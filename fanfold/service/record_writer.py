"""From a decision to the record that is put: what has to be stored before the record may name it (R8)."""

from __future__ import annotations

from dataclasses import replace

from fanfold.engine.language.workflow import Workflow
from fanfold.engine.payload import BlobRef, dump
from fanfold.engine.ports import RunKey
from fanfold.engine.record.fast_replace import fast_replace
from fanfold.engine.record.run import Run
from fanfold.engine.record.sealing import seal
from fanfold.engine.rules.decide import Decision
from fanfold.service.maps import Maps
from fanfold.service.payloads import Payloads
from fanfold.service.wiring import Services

SEAL_OVER_BYTES = 900
"""A head that is this big as it stands has what is finished sealed away: a write unit is 1,024 bytes (R8)."""


class RecordWriter:
    """The next record of one run, made ready for its put: by its holder, or by an operator's move.

    `all_of_it` says that the store refused it as too big: from then on everything that has ended is sealed.
    """

    def __init__(self, services: Services, workflow: Workflow, payloads: Payloads) -> None:
        self._services = services
        self._workflow = workflow
        self._payloads = payloads
        self._maps = Maps(services)
        self.all_of_it = False

    async def next(self, record: Run, decision: Decision, *, signed: bool = False) -> Run:
        """The record to put in place of `record`; what it names elsewhere is stored by then.

        `signed`: its first new journal entry names the put. The same move of two operators in one millisecond reads
        the same but for that.
        """
        run = fast_replace(decision.run, version=record.version + 1, write_id=self._services.ids.token())
        if signed:
            first = record.last_seq + 1
            journal = (replace(entry, write_id=run.write_id) if entry.seq == first else entry for entry in run.journal)
            run = fast_replace(run, journal=tuple(journal))
        return await self._sealed(record, await self._maps.pinned(await self._spilled(run)))

    async def _spilled(self, run: Run) -> Run:
        """A big output of the whole run is stored apart."""
        if not run.terminal or run.output is None or isinstance(run.output, BlobRef):
            return run
        data = dump(run.output)
        if len(data) <= self._services.settings.inline_bytes:
            return run
        ref = await self._payloads.store(run, f"output/{run.write_id}", run.output, data)
        return replace(run, output=ref)

    async def _sealed(self, record: Run, run: Run) -> Run:
        """What is finished is sealed away when the head is about to outgrow a write unit."""
        if not self.all_of_it and (record.head_bytes <= SEAL_OVER_BYTES or run.terminal):
            return run
        head, segments = seal(run, self._workflow, committed_seq=record.last_seq, all_of_it=self.all_of_it)
        key = RunKey(tenant=run.tenant, run_id=run.id)
        for segment in segments:
            await self._services.runs.put_segment(key, segment, now=self._services.clock.now())
        return head
