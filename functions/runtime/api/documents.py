"""Workflow documents as they are sent: JSON or YAML text → the JSON they stand for."""

from __future__ import annotations

from functions.engine.values import Json
from functions.runtime.api.requests import Request

YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})


def document_of(request: Request) -> Json:
    """The document a request carries, by its content type (JSON where it names none we know).

    Refused with 400 where the text can't be read, with 422 where YAML says what JSON can't.
    """
    if request.content_type not in YAML_TYPES:
        return request.json()
    from functions.runtime.api.yamltext import from_yaml  # PyYAML: most cold starts never see any

    return from_yaml(request.body)
