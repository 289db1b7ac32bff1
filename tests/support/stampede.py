"""A process that takes part in a crowd: many threads that call the API's handler, or a worker. To be killed.

`python -m tests.support.stampede submit THREADS EACH BODIES` or `… work`, with the settings and the
endpoint in the environment. BODIES is a JSON list of `{key, body}` that the threads take in turn;
EACH 0 goes on for ever. What was answered goes to standard output as JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fanfold.service.aws_clients import Aws
from fanfold.service.functions.api import build
from fanfold.service.settings import Settings
from fanfold.service.wiring import Services, services
from fanfold.service.worker.isolation import Isolation
from fanfold.service.worker.process import Worker
from tests.support.http import Http

Answer = dict[str, Any]


def environment(settings: Settings, endpoint: str) -> dict[str, str]:
    """What such a process needs to know."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "FANFOLD_"))}
    return {
        **inherited,
        **settings.to_env(),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def submitting(on: Services, threads: int, each: int, bodies: list[Mapping[str, Any]]) -> list[Answer]:
    """Each thread, like a Lambda sandbox, has a handler of its own and calls it `each` times; what was answered."""
    together = threading.Barrier(threads)
    numbers = itertools.count()
    frame = Http(services=on)

    def sandbox() -> list[Answer]:
        app = build(on)
        answers: list[Answer] = []
        together.wait()
        for _ in range(each) if each else itertools.count():
            given = bodies[next(numbers) % len(bodies)]
            headers = {"Idempotency-Key": given["key"]} if given.get("key") else {}
            answer = app(frame.event("POST", "/v1/runs", given["body"], headers=headers), None)
            if each:
                answers.append(answer)
        app.close()
        return answers

    with ThreadPoolExecutor(threads) as pool:
        return [answer for each_one in [pool.submit(sandbox) for _ in range(threads)] for answer in each_one.result()]


def main() -> None:
    """Do what the arguments say."""
    settings = Settings.from_env(os.environ)
    on = services(settings, Aws(threads=16))
    if sys.argv[1] == "work":
        worker = Worker(on, class_name="model", lanes=["normal"], concurrency=16, isolation=Isolation(settings))
        asyncio.run(worker.run())
        return
    answers = submitting(on, int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
    sys.stdout.write("\n" + json.dumps(answers))


if __name__ == "__main__":
    main()
