"""What a worker process is called in journals and logs, for people."""

from __future__ import annotations

import os
import socket


def worker_name() -> str:
    """Where the process runs (a Lambda's log stream, else the host), and its process id, after a colon."""
    stream = os.environ.get("AWS_LAMBDA_LOG_STREAM_NAME", "")
    return f"{stream[-8:] or socket.gethostname()}:{os.getpid()}"
