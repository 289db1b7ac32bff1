"""Cold starts of the functions as they ship: fresh interpreters that find nothing but what Lambda would."""

from __future__ import annotations

import compileall
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

from fanfold import project
from fanfold.cdk.shipped import copy_shipped

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
CHILD = Path(__file__).with_name("coldchild.py")

MODULES: Mapping[str, int] = {
    "api": 560,
    "authorizer": 325,
    "deadletter": 368,
    "fanout": 387,
    "sweeper": 402,
    "watch": 560,
    "worker": 420,
}
"""The import budget: how many modules a handler may load before its first call, beyond what Python starts with."""

_IMPORTED = re.compile(r"import time:\s*(\d+) \|\s*\d+ \|\s*([\w.]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One cold start: milliseconds of the processor for the import and for the first call, elapsed for both."""

    import_ms: float
    first_ms: float
    elapsed_ms: float
    modules: int
    answer: Any


def shipped(folder: Path) -> Path:
    """A folder like what ships: `functions` and the locked packages as installed here, compiled as for Lambda."""
    folder.mkdir(parents=True)
    copy_shipped(project.at(ROOT), folder)
    for name in re.findall(r"^([\w.-]+)==", LOCK.read_text(encoding="utf-8"), re.MULTILINE):
        for file in files(name) or ():
            if ".." in file.parts or file.suffix == ".pyc":
                continue
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(file.locate()), target)
    compileall.compile_dir(folder, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    return folder


def cold_start(package: Path, handler: str, event: Mapping[str, Any], environ: Mapping[str, str]) -> Start:
    """Import a handler and call it, in a fresh interpreter. Raises RuntimeError when it can't."""
    told = json.loads(_started(package, handler, event, environ)[-1])
    imported, first = told["import"], told["first"]
    return Start(
        import_ms=imported[0],
        first_ms=first[0],
        elapsed_ms=imported[1] + first[1],
        modules=imported[2],
        answer=told["answer"],
    )


def import_shares(
    package: Path, handler: str, event: Mapping[str, Any], environ: Mapping[str, str], *, of: int = 12
) -> Mapping[str, float]:
    """Share of each package in the time of all imports up to the end of the first call; the `of` biggest."""
    spent: Counter[str] = Counter()
    for line in _started(package, handler, event, environ, "-X", "importtime"):
        if found := _IMPORTED.match(line):
            spent[found[2].partition(".")[0]] += int(found[1])
    return {name: took / spent.total() for name, took in spent.most_common(of)}


def _started(
    package: Path, handler: str, event: Mapping[str, Any], environ: Mapping[str, str], *options: str
) -> list[str]:
    """What a cold start says on standard error."""
    done = subprocess.run(
        # Isolated, without site-packages: what is not in the package is not there.
        [sys.executable, "-I", "-S", *options, str(CHILD)],
        input=json.dumps({"package": str(package), "handler": handler, "event": event}),
        env=dict(environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{handler} did not start: {done.stderr.strip()[-2_000:]}")
    return done.stderr.splitlines()
