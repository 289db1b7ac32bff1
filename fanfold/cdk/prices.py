"""AWS's on-demand prices in USD, us-east-1 (price pages, November 2026). Other regions differ a little."""

from __future__ import annotations

from typing import Final

MILLION: Final = 1e6

WRITE_UNIT: Final = 0.625 / MILLION
READ_UNIT: Final = 0.125 / MILLION
QUEUE_REQUEST: Final = 0.40 / MILLION
BUCKET_WRITE: Final = 5.0 / MILLION
BUCKET_READ: Final = 0.40 / MILLION
INVOCATION: Final = 0.20 / MILLION
GB_SECOND: Final = {"arm64": 0.0000133334, "x86_64": 0.0000166667}
API_REQUEST: Final = {"http": 1.0 / MILLION, "rest": 3.5 / MILLION}
MAP_BATCH: Final = (25.0 + 1.0) / MILLION
"""One transition of the Standard execution that reads the list, one request of an Express one."""
