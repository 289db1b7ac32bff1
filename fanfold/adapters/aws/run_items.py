"""The table's layout, and a run as an item of it: pure both ways.

One table. Keys: `pk` (S, partition) and `sk` (S, sort). TTL attribute: `x` (N, seconds since the epoch). Two global
indexes, both KEYS_ONLY: `list` with `lp` (S, partition) and `ls` (S, sort); `due` with `dp` (S, partition) and `ds`
(N, sort). Tenants' names never contain '#', which is checked where a key is made: one tenant's keys can't address
another's items.

| item | pk | sk | attributes |
| --- | --- | --- | --- |
| head of a run | `{tenant}#{run_id}` | `0` | below |
| workflow, current | `{tenant}#w` | `c#{name}` | see `catalog` |
| workflow, a version | `{tenant}#w` | `v#{name}#{version}` | see `catalog` |
| token | `#tokens` | token id | see `tokens` |
| tenant | `#tenants` | tenant | |
| the sweeper's state | `#marks` | name | see `sweeper_state` |
| slots of a class | `#slots#{class}#{shard}` | `0` | see `slots` |
| a seat of calls that wait | `#seats#{number}` | `0` | see `seats` |

The head's attributes (names are short because DynamoDB counts and bills them; ids and hashes are binary):

    z   N  schema number                       u   B  submission id
    n   N  version                             w   B  write id
    s   S  status, one letter                  v   B  workflow version
    e   N  epoch                               h   B  request hash
    o   B  owner, if it ever had one           b   B  everything else (see `record`)
    l   N  lease_until in ms, if any           x   N  TTL, only in an ended run's record
    lp  S  `{tenant}#{bucket}#{shard}`         ls  S  `{created_at in ms, 13 digits}#{run_id}`
    dp  S  `due#{class}#{shard}`, only while waiting with a due time
    ds  N  due_at in ms, likewise

A record is expired once `x < now`: it counts as absent from then on, whether or not DynamoDB has deleted it yet.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache, wraps
from typing import Any, Final, TypeVar

from fanfold.adapters.packing import from_ms, to_ms
from fanfold.adapters.run_codec import decode, encode
from fanfold.engine.errors import NewerSchema, Unreadable
from fanfold.engine.ports import EPOCH, Bucket, DueKey, IndexKey, RunKey
from fanfold.engine.record.run import SCHEMA, TERMINAL, Run, Status
from fanfold.engine.tenant import checked_tenant

T = TypeVar("T")

Item = dict[str, Any]
"""An item in DynamoDB's own JSON: `{"pk": {"S": "…"}, …}`."""

PK: Final = "pk"
SK: Final = "sk"
TTL: Final = "x"
HEAD: Final = "0"
LIST_INDEX: Final = "list"
LIST_PK: Final = "lp"
LIST_SK: Final = "ls"
DUE_INDEX: Final = "due"
DUE_PK: Final = "dp"
DUE_SK: Final = "ds"

_LIST_SORT: Final = re.compile(r"[0-9]{13}#.*", re.DOTALL | re.ASCII)
_LAST_MS: Final = 9_999_999_999_999
"""The last time of 13 digits, in the year 2286."""

MAX_ITEM_BYTES: Final = 400 * 1024
"""DynamoDB's limit for one item, attribute names included."""

_LETTERS: Final[Mapping[Status, str]] = {
    Status.QUEUED: "q",
    Status.RUNNING: "r",
    Status.WAITING: "w",
    Status.PAUSED: "p",
    Status.SUCCEEDED: "s",
    Status.FAILED: "f",
    Status.CANCELLED: "c",
}
_STATUSES: Final = {letter: status for status, letter in _LETTERS.items()}
_BUCKETS: Final[Mapping[Status, str]] = {
    Status.SUCCEEDED: Bucket.SUCCEEDED,
    Status.FAILED: Bucket.FAILED,
    Status.CANCELLED: Bucket.CANCELLED,
}


def reads_items(read: Callable[[Mapping[str, Any]], T]) -> Callable[[Mapping[str, Any]], T]:
    """Makes whatever goes wrong while an item is read an `Unreadable` that names the item."""

    @wraps(read)
    def readable(item: Mapping[str, Any]) -> T:
        try:
            return read(item)
        except Unreadable:
            raise
        except Exception as error:
            key = "/".join(str(item.get(name, {}).get("S")) for name in (PK, SK))
            raise Unreadable(f"the item {key} can't be read: {type(error).__name__}: {str(error)[:200]}") from error

    return readable


def head_key(tenant: str, run_id: str) -> Item:
    """The primary key of a run's head."""
    return {PK: {"S": f"{checked_tenant(tenant)}#{run_id}"}, SK: {"S": HEAD}}


def run_key(item: Mapping[str, Any]) -> RunKey:
    """The run of a head, or of an entry of an index."""
    tenant, _, run_id = item[PK]["S"].partition("#")
    return RunKey(tenant=tenant, run_id=run_id)


def shard_of(run_id: str, shards: int) -> int:
    """The shard of a run: the same in every process, for ever."""
    return zlib.crc32(run_id.encode()) % shards if shards > 1 else 0


def list_partition(tenant: str, bucket: str, shard: int) -> str:
    """The list index's partition key."""
    return f"{checked_tenant(tenant)}#{bucket}#{shard}"


def list_sort(created_at: datetime, run_id: str) -> str:
    """The list index's sort key: by time of creation, then by id."""
    return f"{to_ms(created_at):013d}#{run_id}"


@reads_items
def index_key(item: Mapping[str, Any]) -> IndexKey:
    """An entry of the list index. A damaged sort key costs only its own entry's time."""
    key = run_key(item)
    sort = item[LIST_SK]["S"]
    if not _LIST_SORT.fullmatch(sort) or sort[14:] != key.run_id:
        return IndexKey(tenant=key.tenant, run_id=key.run_id, created_at=EPOCH, sort=sort)
    return IndexKey(tenant=key.tenant, run_id=key.run_id, created_at=from_ms(int(sort[:13])))


def due_partition(class_name: str, shard: int) -> str:
    """The due index's partition key: by class, so that one with a backlog hides no other's."""
    return f"due#{class_name}#{shard}"


@reads_items
def due_key(item: Mapping[str, Any]) -> DueKey:
    """An entry of the due index. A damaged time counts as due, and the record decides."""
    key = run_key(item)
    ms = Decimal(item[DUE_SK]["N"])
    due_at = from_ms(int(ms)) if 0 <= ms <= _LAST_MS else EPOCH
    return DueKey(tenant=key.tenant, run_id=key.run_id, due_at=due_at)


def to_item(run: Run, *, index_shards: int = 1, due_shards: int = 1) -> Item:
    """A run's head item. Raises ValueError or TypeError for a run no record can hold (a gap in the journal, NaN)."""
    item: Item = {
        **head_key(run.tenant, run.id),
        "z": {"N": str(SCHEMA)},
        "n": {"N": str(run.version)},
        "s": {"S": _LETTERS[run.status]},
        "e": {"N": str(run.epoch)},
        "u": {"B": pack(run.submission)},
        "w": {"B": pack(run.write_id)},
        "v": {"B": pack(run.workflow_version)},
        "h": {"B": pack(run.request_hash)},
        "b": {"B": encode(run)},
        LIST_PK: {
            "S": list_partition(run.tenant, _BUCKETS.get(run.status, Bucket.ACTIVE), shard_of(run.id, index_shards))
        },
        LIST_SK: {"S": list_sort(run.created_at, run.id)},
    }
    if run.owner is not None:
        item["o"] = {"B": pack(run.owner)}
    if run.lease_until is not None:
        item["l"] = {"N": str(to_ms(run.lease_until))}
    if run.status is Status.WAITING and run.due_at is not None:
        item[DUE_PK] = {"S": due_partition(run.class_name, shard_of(run.id, due_shards))}
        item[DUE_SK] = {"N": str(to_ms(run.due_at))}
    if run.status in TERMINAL and run.expires_at is not None:
        item[TTL] = {"N": str(-(-to_ms(run.expires_at) // 1000))}
    return item


@reads_items
def from_item(item: Mapping[str, Any]) -> Run:
    """The run a head item holds. Raises `Unreadable`; `NewerSchema` when a newer version of the code wrote it."""
    schema = int(item["z"]["N"])
    if schema > SCHEMA:
        raise NewerSchema(f"the record has schema {schema}, this code reads up to {SCHEMA}")
    key = run_key(item)
    return decode(
        item["b"]["B"],
        schema=schema,
        tenant=key.tenant,
        id=key.run_id,
        created_at=from_ms(int(item[LIST_SK]["S"].partition("#")[0])),
        version=int(item["n"]["N"]),
        status=_STATUSES[item["s"]["S"]],
        epoch=int(item["e"]["N"]),
        owner=unpack(item["o"]["B"]) if "o" in item else None,
        lease_until=from_ms(int(item["l"]["N"])) if "l" in item else None,
        submission=unpack(item["u"]["B"]),
        write_id=unpack(item["w"]["B"]),
        workflow_version=unpack(item["v"]["B"]),
        request_hash=unpack(item["h"]["B"]),
        head_bytes=size(item),
    )


def expired(item: Mapping[str, Any], now: datetime) -> bool:
    """Whether an item is past its TTL: the same comparison as in the conditions, which a text never meets."""
    return "N" in item.get(TTL, ()) and int(item[TTL]["N"]) * 1000 < to_ms(now)


def seconds(moment: datetime) -> str:
    """A time as a condition compares it with `x`: seconds with three decimals."""
    whole, part = divmod(to_ms(moment), 1000)
    return f"{whole}.{part:03d}"


_TEXT, _TOKEN, _HASH, _VERSION = b"\x00", b"\x01", b"\x02", b"\x03"
_VERSION_PREFIX: Final = "sha256:"


@lru_cache(maxsize=1_024)  # of the six in a record, five are the same in its next version
def pack(text: str) -> bytes:
    """An id or hash in as few bytes as it has: 16-character tokens and SHA-256 in hex by their bytes, else as text."""
    if len(text) == 16:
        try:
            raw = base64.urlsafe_b64decode(text)
        except (binascii.Error, ValueError):
            raw = b""
        # The decoder skips foreign characters; only what comes back the same may be packed.
        if base64.urlsafe_b64encode(raw).decode("ascii") == text:
            return _TOKEN + raw
    kind, digits = (_VERSION, text[7:]) if text.startswith(_VERSION_PREFIX) else (_HASH, text)
    if len(digits) == 64:
        try:
            raw = bytes.fromhex(digits)
        except ValueError:
            raw = b""
        if raw.hex() == digits:
            return kind + raw
    return _TEXT + text.encode("utf-8", "surrogatepass")


def unpack(data: bytes) -> str:
    """What `pack` packed. Raises ValueError for what it did not."""
    kind, raw = data[:1], data[1:]
    match kind:
        case b"\x00":
            return raw.decode("utf-8", "surrogatepass")
        case b"\x01":
            return base64.urlsafe_b64encode(raw).decode("ascii")
        case b"\x02":
            return raw.hex()
        case b"\x03":
            return _VERSION_PREFIX + raw.hex()
        case _:
            raise ValueError(f"an id packed in an unknown way: {kind!r}")


def size(item: Mapping[str, Any]) -> int:
    """An item's size in bytes as DynamoDB counts it: names in UTF-8 and values; numbers about a byte per two digits."""
    total = 0
    # Asked of each record that is written: a function for a value, or patterns of mappings, would take twice as long.
    for name, value in item.items():
        ((kind, held),) = value.items()
        total += len(name)  # they are all ASCII
        if kind == "S":
            total += len(held) if held.isascii() else len(held.encode("utf-8", "surrogatepass"))
        elif kind == "B":
            total += len(held)
        elif kind == "N":
            digits = held.replace("-", "").replace(".", "").strip("0")
            total += (len(digits) + 1) // 2 + 1 + held.startswith("-")
        else:
            raise ValueError(f"no item of this table has a value like {value!r}")
    return total
