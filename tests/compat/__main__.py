"""`python -m tests.compat`: record every state for the schema this code writes. What was recorded before stays."""

from __future__ import annotations

from fanfold.engine.record.run import SCHEMA
from tests.compat.recorder import SCENES, record
from tests.compat.recording import DATA


def main() -> None:
    """Record what is not recorded yet."""
    folder = DATA / f"schema-{SCHEMA}"
    missing = [name for name in SCENES if not (folder / f"{name}.json").exists()]
    record(folder, missing, lambda line: print(line, flush=True))  # noqa: T201


if __name__ == "__main__":
    main()
