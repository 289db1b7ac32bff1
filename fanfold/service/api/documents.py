"""Parses workflow documents in JSON or YAML."""

from __future__ import annotations

from fanfold.engine.payload import Json
from fanfold.service.api.problems import malformed
from fanfold.service.api.requests import Request
from fanfold.text.document_text import MalformedText, from_text

YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})


def document_of(request: Request) -> Json:
    """The document in a request, by its content type (JSON by default).

    Refused with 400 if the text is malformed.
    """
    if request.content_type not in YAML_TYPES:
        return request.json()
    try:
        return from_text(request.body)
    except MalformedText as error:
        raise malformed(str(error), slug="malformed-yaml") from error
