"""What the state machine does for a map's execution, as tasks on an event loop: for adapters without Step Functions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from fanfold.engine.ports import Execution
from fanfold.engine.record.messages import RESUME, QueueName, Wake

TRIES: Final = 2
"""How often the state machine calls the function for a batch before it calls it for each of its items."""

Work = Callable[[Mapping[str, Any]], Awaitable[object]]
"""Works on one batch, given the event of the fan-out function; raising is the function's failure."""


class NoRoom(Exception):
    """What works on batches has no room for this one: nothing of it was begun."""


async def work_through(execution: Execution, batches: Iterable[Mapping[str, int]], work: Work) -> bool:
    """Call the function for each batch, as many at a time as the execution says; whether one found no room.

    A batch that fails twice is called once more for each of its items. The function's failures are tolerated, whatever
    they are: the run finds out from the batches' records.
    """
    order = {
        "tenant": execution.tenant,
        "run": execution.run_id,
        "submission": execution.submission,
        "step": execution.step,
        "try": execution.try_number,
    }
    at_once = asyncio.Semaphore(execution.batches_at_once)
    refused = False

    async def done(batch: Mapping[str, int]) -> bool:
        """Whether it need not be asked for again here: it is done, or was refused."""
        nonlocal refused
        try:
            await work({**order, "batch": batch})
        except NoRoom:
            refused = True
        except Exception:  # the function's failure, whatever it is; the state machine tolerates all of them
            return False
        return True

    async def one(batch: Mapping[str, int]) -> None:
        async with at_once:
            for _ in range(TRIES):
                if await done(batch):
                    return
            singles = [{"from": index, "to": index + 1} for index in range(batch["from"], batch["to"])]
            await asyncio.gather(*map(done, singles))

    async with asyncio.TaskGroup() as group:
        for batch in batches:
            group.create_task(one(batch))
    return refused


def end_of(execution: Execution) -> tuple[QueueName, Wake]:
    """The message that tells the run of an execution's end, and its queue."""
    wake = Wake(
        tenant=execution.tenant,
        run_id=execution.run_id,
        submission=execution.submission,
        class_name=execution.class_name,
        map_step=execution.step,
    )
    return QueueName(class_name=execution.class_name, role=RESUME), wake
