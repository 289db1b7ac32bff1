"""Tasks that look at text."""

from __future__ import annotations

import re
from collections import Counter

from fanfold import Fail, task
from fanfold.engine.payload import Json

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


@task("text.words")
async def words(given: Json) -> Json:
    """Counts the words of a text: `{word: times}`, in lower case. A word is made of letters, `'` and `-` within."""
    if not isinstance(given, str):
        raise Fail(f"the input must be a text, not {type(given).__name__}")
    return dict(Counter(_WORD.findall(given.lower())))
