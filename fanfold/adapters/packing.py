"""What all that is packed shares: compact JSON, deflated with a preset dictionary, and times as whole milliseconds."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from fanfold.engine.payload import Json

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# What records are full of; the likeliest last, where a reference to it is shortest.
_DICTIONARIES: Final[Mapping[int, bytes]] = {
    1: (
        b'attempts_exhaustedexpired_in_queuestep_failedtimed_out"delay_seconds":"error":{"type":"interrupted"'
        b',"message":"the worker died"files/inputs/outputs/"$ref":"sha256":"bytes":"url":"https://http://'
        b'"role":"user","content":"assistant""system""model":"usage":{"input_tokens":"output_tokens":"total_tokens":'
        b'"stop_reason":"end_turn""name":"value":"items":"index":"count":"result":"status":"id":"data":"title":'
        b'"summary":"description":truefalsenull"core.'
        b'"high""low""harness""prompt":"message":"text":"input":{"output":'
        b'["model","normal",[{"model","normal",[{}],{},86400000,null,[0,490000],null,null,[{"'
        b',null,null,null,null],null,1,null,,0,{":[3,1,0,0,],null,[3,1,0,0,'
        b'":[3,1,0,0,],null,[{}]],null,[null]}]]},1,[[0,0],[1,],[2,0,0,1],[3,0,0,1],[2,0,1,1],[2,0,2,1],'
        b"[3,0,1,1],[3,0,2,1],[2,0,3,1],[3,0,3,1],[4,0]],[]]"
    )
}


_SMALL_BYTES: Final = 4_000
_SMALL: Final = (13, 6)
"""Base two logarithm of the window, and memory level, for so few bytes: these and the dictionary lie within the window,
so that the result is the same, and the packer has a quarter of the memory to clear."""


def to_ms(moment: datetime) -> int:
    """Whole milliseconds since the epoch."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def from_ms(ms: int) -> datetime:
    """The time that many milliseconds after the epoch, UTC."""
    return _EPOCH + timedelta(milliseconds=ms)


_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def deflate(value: Json, *, schema: int) -> bytes:
    """A JSON value, compact and compressed. Raises ValueError or TypeError for what is no JSON."""
    data = _to_json(value).encode("ascii")
    window, memory = _SMALL if len(data) < _SMALL_BYTES else (zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL)
    packer = zlib.compressobj(9, zlib.DEFLATED, window, memory, zdict=_DICTIONARIES[schema])
    return packer.compress(data) + packer.flush()


def inflate(data: bytes, *, schema: int) -> Json:
    """What `deflate` made. Raises zlib.error for damaged bytes."""
    return json.loads(zlib.decompressobj(zlib.MAX_WBITS, zdict=_DICTIONARIES[schema]).decompress(data))
