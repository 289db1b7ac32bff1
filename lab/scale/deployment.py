"""What of a deployment decides how it scales: its shards, its concurrency, its table's throughput."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fanfold import project
from fanfold.cdk.classes import classes_of
from fanfold.service.settings import ClassSettings, Settings
from lab.scale.limits import ACCOUNT_CONCURRENCY, NEW_TABLE_WRITES, PARTITION_WRITES

CLASS = "model"
LANE = "normal"


class Kind(StrEnum):
    """A limit of writes; its value is how it is called in results. The last four are partition keys, by shard."""

    TABLE = "table"
    LIST = "list index"
    DUE = "due index"
    SLOTS = "slots counter"
    ACTIVE = "active runs' list partition"
    ENDED = "ended runs' list partition"
    WAITING = "due partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The settings that move a limit, for one class, one lane of it, and one tenant.

    `maximum_concurrency` are the lane's batches at once, `batch_size` its runs in each; `warm_writes` are write units
    a second of the table and of each index; `partition_writes` those of one partition key, which nobody can set: a
    smaller one shows the same on fewer runs. `memory_mb` is the worker function's.
    """

    slot_shards: int = 1
    index_shards: int = 1
    due_shards: int = 1
    maximum_concurrency: int = 33
    batch_size: int = 10
    account_concurrency: int = ACCOUNT_CONCURRENCY
    warm_writes: float = NEW_TABLE_WRITES
    partition_writes: float = PARTITION_WRITES
    memory_mb: int = 1_024

    def shards(self, kind: Kind) -> int:
        """Over how many counters or partitions a limit is spread."""
        match kind:
            case Kind.SLOTS:
                return self.slot_shards
            case Kind.ACTIVE | Kind.ENDED:
                return self.index_shards
            case Kind.WAITING:
                return self.due_shards
            case Kind.TABLE | Kind.LIST | Kind.DUE:
                return 1

    def writes(self, kind: Kind) -> float:
        """Write units a second that one of them takes."""
        return self.warm_writes if kind in (Kind.TABLE, Kind.LIST, Kind.DUE) else self.partition_writes

    def settings(self) -> Settings:
        """The runtime's settings of such a deployment; nobody is refused for too many queued runs."""
        lanes = tuple(classes_of(project.at(Path(__file__).parents[2]).classes, defaults={}, local=False)[CLASS].lanes)
        return Settings(
            classes={CLASS: ClassSettings(lanes=lanes, max_queue_depth=0)},
            submits_per_minute=0,
            slot_shards=self.slot_shards,
            index_shards=self.index_shards,
            due_shards=self.due_shards,
        )


def shipped() -> Deployment:
    """What ships: the settings' defaults, and class `model` with its lane `normal` as `pyproject.toml` has them."""
    settings = Settings()
    of_class = classes_of(project.at(Path(__file__).parents[2]).classes, defaults={}, local=False)[CLASS]
    return Deployment(
        slot_shards=settings.slot_shards,
        index_shards=settings.index_shards,
        due_shards=settings.due_shards,
        maximum_concurrency=of_class.lanes[LANE],
        batch_size=of_class.batch_size,
        memory_mb=of_class.memory_mb,
    )
