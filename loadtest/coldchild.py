"""A cold start, in an interpreter of its own: import a handler and call it once. Loaded by path, with nothing else.

Standard input is a JSON object: `package` (the folder that ships), `handler` (its module) and `event`. The last line
of standard error is what it took: milliseconds of the processor and elapsed, and how many modules were loaded.
"""

import json
import sys
import time
from itertools import pairwise


class Invocation:
    """What Lambda calls the context, as far as the handlers ask it."""

    def get_remaining_time_in_millis(self) -> int:
        """The time left, always all of it."""
        return 900_000


def main() -> None:
    """Start cold, and tell."""
    asked = json.load(sys.stdin)
    sys.path.insert(0, asked["package"])
    marks = []

    def mark() -> None:
        marks.append((time.process_time() * 1_000, time.perf_counter() * 1_000, len(sys.modules)))

    mark()
    module = __import__(f"functions.{asked['handler']}", fromlist=["handler"])
    mark()
    answer = module.handler(asked["event"], Invocation())
    mark()
    spans = [[b - a for a, b in zip(one, two, strict=True)] for one, two in pairwise(marks)]
    sys.stdout.flush()
    print(json.dumps({"import": spans[0], "first": spans[1], "answer": answer}), file=sys.stderr)


if __name__ == "__main__":
    main()
