"""The machine, the versions and the settings a result was measured with."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fanfold.service.settings import Settings

PACKAGES = ("boto3", "botocore", "ministack", "locust", "pydantic", "aws-lambda-powertools", "httpx")

CEILINGS: Mapping[str, str] = {
    "submits/s over HTTP through the emulator": "about 110 (three AWS calls each)",
    "AWS calls/s of the emulator": "about 450–700",
    "diamonds/s through the emulator": "about 55 (12 calls each)",
    "requests/s of the driver": "about 3,300 against a server that does nothing (scenario `driver`, idle box)",
}
"""What emulator, driver and two cores allow whatever the product does; the emulator's measured when it was chosen."""


FACTS_OF_A_STACK = frozenset({"table", "bucket", "classes", "stage", "ledger"})
"""Settings that say where things are, not how they behave."""


def differing(settings: Settings) -> dict[str, Any]:
    """The settings that are not as shipped, by name; of the classes, how many runs each lets wait."""
    shipped = Settings()
    names = [field.name for field in fields(Settings) if field.name not in FACTS_OF_A_STACK]
    different = {name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(shipped, name)}
    bounds = {name: of_class.max_queue_depth for name, of_class in settings.classes.items()}
    return {**different, "max_queue_depth": bounds}


def environment(target: str) -> dict[str, Any]:
    """What has to stand beside every result."""
    return {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "target": target,
        "commit": _commit(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_before": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "ceilings": dict(CEILINGS),
    }


def _commit() -> str:
    """The commit that was measured, with `+` when the files were not quite that."""
    root = Path(__file__).resolve().parent.parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!loadtest/results")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
