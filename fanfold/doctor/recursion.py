"""Lambda's recursion guard, which drops messages of a queue that a function also sends to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fanfold.doctor.deployment import Deployment
from fanfold.doctor.finding import Check, Finding, Remedy

ALLOW = "Allow"
LOOPING = ("worker-", "deadletter")
"""The functions that take from queues what they, through others, put there (by their names' beginnings)."""


def find(deployment: Deployment) -> Iterator[Finding]:
    """A function in a queue's loop whose loops Lambda cuts."""
    client = deployment.client("lambda")
    for name, function in deployment.functions.items():
        if not name.startswith(LOOPING):
            continue
        physical = function["FunctionName"]
        told = client.get_function_recursion_config(FunctionName=physical)["RecursiveLoop"]
        if told != ALLOW:
            lost = " The emulator loses this part of the template." if deployment.emulated else ""
            yield Finding(
                what=f"The recursion guard of {name} says {told}.",
                why="Lambda drops a message silently once it went from queue to function to queue about 16 times;"
                " runs with many suspensions would stop for minutes until the sweeper sends a wake." + lost,
                fix=f"Set the function's recursive loop detection to {ALLOW}: our loops are bounded.",
                remedy=Remedy(
                    does=f"allow {name} its loop over the queue",
                    apply=partial(client.put_function_recursion_config, FunctionName=physical, RecursiveLoop=ALLOW),
                ),
            )


CHECK = Check(name="recursion", looks_at="Lambda's recursion guard on the functions in a queue's loop", find=find)
