"""The table as a table of a SQLite file: DynamoDB's operations on single items, with its conditions and indexes.

An item's keys, the keys of the two indexes and its TTL have columns of their own; all of it is JSON beside them, with
binaries in base64. Answers are not cut at 1 MB.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from fanfold.adapters.aws.calls import Client
from fanfold.adapters.aws.run_items import DUE_INDEX, DUE_PK, DUE_SK, LIST_INDEX, LIST_PK, LIST_SK, PK, SK, TTL, Item
from fanfold.adapters.sqlite import expressions
from fanfold.adapters.sqlite.database import Database
from fanfold.engine.errors import Conflict, Unavailable

_INDEXES: Final[Mapping[str | None, tuple[str, str]]] = {
    None: (PK, SK),
    LIST_INDEX: (LIST_PK, LIST_SK),
    DUE_INDEX: (DUE_PK, DUE_SK),
}
_COLUMNS: Final = (PK, SK, LIST_PK, LIST_SK, DUE_PK, DUE_SK, TTL)
_PUT: Final = (
    f"INSERT OR REPLACE INTO items ({', '.join(_COLUMNS)}, attributes) VALUES ({', '.join('?' * (len(_COLUMNS) + 1))})"
)
_GET: Final = "SELECT attributes FROM items WHERE pk = ? AND sk = ?"
_KEY_CONDITION: Final = re.compile(
    r"(?P<partition>\w+) = (?P<of>:\w+)"
    r"(?: AND (?:begins_with\((?P<begun>\w+), (?P<prefix>:\w+)\)"
    r"|(?P<between>\w+) BETWEEN (?P<low>:\w+) AND (?P<high>:\w+)"
    r"|(?P<sort>\w+) (?P<compare><|<=|>|>=|=) (?P<value>:\w+)))?"
)
_INTEGERS: Final = range(-(2**63), 2**63)


class SqliteTable:
    """A `Call` of the DynamoDB operations that the adapters use, on one file. `TableName` is not looked at."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watched: dict[tuple[str, str], asyncio.Event] = {}
        self._operations: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
            "get_item": self._get_item,
            "batch_get_item": self._batch_get_item,
            "query": self._query,
            "put_item": self._put_item,
            "update_item": self._update_item,
            "delete_item": self._delete_item,
        }

    async def __call__(
        self, client: Client, operation: str, /, *, in_time: Callable[[], bool] | None = None, **parameters: Any
    ) -> Any:
        """See `Call`. Raises `Conflict`, `Unavailable`, `Unanswered`."""
        work = self._operations[operation](parameters)
        if operation in ("get_item", "batch_get_item", "query"):
            return await self._database.read(work)

        def timely(connection: sqlite3.Connection) -> Any:
            if in_time is not None and not in_time():
                raise Unavailable(f"{operation} was not carried out: it would have come too late")
            return work(connection)

        answer = await self._database.write(timely)
        changed = self._watched.pop(_key(parameters.get("Key") or parameters["Item"]), None)
        if changed is not None:
            changed.set()
        return answer

    async def until_written(self, key: Item, *, seconds: float) -> None:
        """Wait until this process writes the item of that key, or for so long."""
        changed = self._watched.setdefault(_key(key), asyncio.Event())
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            if self._watched.get(_key(key)) is changed:
                del self._watched[_key(key)]  # others that wait for it look again when their own time is over

    async def expire(self, now: datetime, *, limit: int = 1_000) -> int:
        """Delete up to `limit` items whose TTL is over, as DynamoDB does; how many."""

        def delete(connection: sqlite3.Connection) -> int:
            over = "SELECT rowid FROM items WHERE x < ? LIMIT ?"
            return connection.execute(
                f"DELETE FROM items WHERE rowid IN ({over})", (int(now.timestamp()), limit)
            ).rowcount

        return await self._database.write(delete)

    def _get_item(self, given: Mapping[str, Any]) -> Callable[[sqlite3.Connection], Any]:
        def work(connection: sqlite3.Connection) -> Any:
            item = _read(connection, given["Key"])
            return {} if item is None else {"Item": item}

        return work

    def _batch_get_item(self, given: Mapping[str, Any]) -> Callable[[sqlite3.Connection], Any]:
        ((table, asked),) = given["RequestItems"].items()

        def work(connection: sqlite3.Connection) -> Any:
            items = (_read(connection, key) for key in asked["Keys"])
            return {"Responses": {table: [item for item in items if item is not None]}, "UnprocessedKeys": {}}

        return work

    def _query(self, given: Mapping[str, Any]) -> Callable[[sqlite3.Connection], Any]:
        partition, sort = _INDEXES[given.get("IndexName")]
        ascending = given.get("ScanIndexForward", True)
        clauses, values = _key_condition(given["KeyConditionExpression"], given["ExpressionAttributeValues"])
        # Rows of an index with equal sort keys are in the order of their primary keys.
        order = [sort] if sort == SK else [sort, PK, SK]
        start = given.get("ExclusiveStartKey")
        if start is not None:
            clauses.append(f"({', '.join(order)}) {'>' if ascending else '<'} ({', '.join('?' * len(order))})")
            values += [_column(start.get(name)) for name in order]
        limit = given.get("Limit", -1)
        direction = "ASC" if ascending else "DESC"
        selected = "attributes" if sort == SK else f"pk, sk, {partition}, {sort}, x"
        text = (
            f"SELECT {selected} FROM items WHERE {' AND '.join(clauses)}"
            f" ORDER BY {', '.join(f'{name} {direction}' for name in order)} LIMIT {int(limit)}"
        )

        def work(connection: sqlite3.Connection) -> Any:
            rows = connection.execute(text, values).fetchall()
            if sort == SK:
                items = [_load(row[0]) for row in rows]
            else:
                names = (PK, SK, partition, sort)
                items = [{name: _attribute(value) for name, value in zip(names, row, strict=False)} for row in rows]
            answer: dict[str, Any] = {"Items": items}
            if 0 < limit == len(items):
                answer["LastEvaluatedKey"] = {name: items[-1][name] for name in {PK, SK, partition, sort}}
            return answer

        return work

    def _put_item(self, given: Mapping[str, Any]) -> Callable[[sqlite3.Connection], Any]:
        item = given["Item"]
        row = _row(item)  # outside the thread that writes

        def work(connection: sqlite3.Connection) -> Any:
            _judge(connection, given, item)
            connection.execute(_PUT, row)
            return {}

        return work

    def _update_item(self, given: Mapping[str, Any]) -> Callable[[sqlite3.Connection], Any]:
        change = expressions.update(_named(given["UpdateExpression"], given))

        def work(connection: sqlite3.Connection) -> Any:
            old = _judge(connection, given, given["Key"])
            item = change(given["Key"] if old is None else old, given.get("ExpressionAttributeValues", {}))
            connection.execute(_PUT, _row(item))
            return {"Attributes": item} if given.get("ReturnValues") == "ALL_NEW" else {}

        return work

    def _delete_item(self, given: Mapping[str, Any]) -> Callable[[sqlite3.Connection], Any]:
        def work(connection: sqlite3.Connection) -> Any:
            _judge(connection, given, given["Key"])
            connection.execute("DELETE FROM items WHERE pk = ? AND sk = ?", _key(given["Key"]))
            return {}

        return work


def _judge(connection: sqlite3.Connection, given: Mapping[str, Any], key: Item) -> Item | None:
    """The item that stands there; raises `Conflict` where the call's condition does not hold."""
    text = given.get("ConditionExpression")
    if text is None and "UpdateExpression" not in given:
        return None
    old = _read(connection, key)
    if text is not None:
        holds = expressions.condition(_named(text, given))
        if not holds(old or {}, given.get("ExpressionAttributeValues", {})):
            raise Conflict(old if given.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" else None)
    return old


def _named(text: str, given: Mapping[str, Any]) -> str:
    for alias, name in given.get("ExpressionAttributeNames", {}).items():
        text = re.sub(rf"{re.escape(alias)}\b", name, text)
    return text


def _key_condition(text: str, values: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    """A key condition in SQL, and its values."""
    found = _KEY_CONDITION.fullmatch(text)
    if found is None:
        raise expressions.NotSpoken(text)
    clauses, given = [f"{found['partition']} = ?"], [_column(values[found["of"]])]
    if found["begun"]:
        prefix = _column(values[found["prefix"]])
        clauses.append(f"{found['begun']} >= ? AND {found['begun']} < ?")
        given += [prefix, prefix + "\U0010ffff"]
    elif found["between"]:
        clauses.append(f"{found['between']} BETWEEN ? AND ?")
        given += [_column(values[found["low"]]), _column(values[found["high"]])]
    elif found["sort"]:
        clauses.append(f"{found['sort']} {found['compare']} ?")
        given.append(_column(values[found["value"]]))
    return clauses, given


def _key(item: Item) -> tuple[str, str]:
    return item[PK]["S"], item[SK]["S"]


def _read(connection: sqlite3.Connection, key: Item) -> Item | None:
    row = connection.execute(_GET, _key(key)).fetchone()
    return None if row is None else _load(row[0])


def _row(item: Item) -> Sequence[Any]:
    return [*(_column(item.get(name)) for name in _COLUMNS), _dump(item)]


def _column(value: Mapping[str, Any] | None) -> Any:
    """An attribute as SQLite compares it."""
    if value is None:
        return None
    ((kind, held),) = value.items()
    if kind != "N":
        return held
    try:
        number = int(held)
    except ValueError:
        return float(held)
    return number if number in _INTEGERS else float(number)


def _attribute(value: Any) -> dict[str, Any]:
    return {"S": value} if isinstance(value, str) else {"N": str(value)}


def _dump(item: Item) -> str:
    return json.dumps(item, separators=(",", ":"), default=_base64)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _load(text: str) -> Item:
    item: Item = json.loads(text)
    for value in item.values():
        if "B" in value:
            value["B"] = base64.b64decode(value["B"])
    return item
