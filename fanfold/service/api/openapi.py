"""The OpenAPI 3.1 document, generated from the table of calls and their models."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from fanfold.service.api import sse
from fanfold.service.api.documents import YAML_TYPES
from fanfold.service.api.examples import ANSWERS, BODIES, DOCUMENTS, NAMES, PARAMETERS, PROBLEMS
from fanfold.service.api.problems import PROBLEM_JSON
from fanfold.service.api.request_models import Incoming
from fanfold.service.api.response_models import BigValue, Health, ProblemView
from fanfold.service.api.routes import Call, pattern

_REF = "#/components/schemas/{model}"
_EVERY_CALL = (401, 403, 500, 503)
_EVERY_TICKET = (401, 500, 503)
_Mode = Literal["validation", "serialization"]

_TAGS = {
    "workflows": "Documents and their versions.",
    "runs": "Submit, read, list and watch them.",
    "operations": "Operations on a run: cancel, pause, resume, signal, redrive, fork.",
    "service": "How it is, and how full.",
}
"""The sections of documentation pages."""


def document(calls: Sequence[Call], *, version: str) -> dict[str, Any]:
    """The document for these calls, of an API of that version."""
    paths: dict[str, dict[str, Any]] = {
        "/v1/health": {
            "get": {
                "operationId": "health",
                "tags": ["service"],
                "summary": "The service is there. Needs no token.",
                "security": [],
                "responses": {"200": _answer(200, Health)},
            }
        }
    }
    for call in calls:
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fanfold", "version": version, "description": "Durable multi-step runs over HTTPS."},
        # Relative to this document: the API may have a stage or an emulator's path in front.
        "servers": [{"url": "."}],
        "security": [{"bearer": []}],
        "tags": [{"name": name, "description": said} for name, said in _TAGS.items()],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(_models(calls)),
        },
    }


def _tag(call: Call) -> str:
    noun = call.path.split("/")[2]
    if noun in ("runs", "stream"):
        return "operations" if call.method == "POST" and "{id}" in call.path else "runs"
    return "workflows" if noun == "workflows" else "service"


def _models(calls: Iterable[Call]) -> list[tuple[type[BaseModel], _Mode]]:
    models: dict[tuple[type[BaseModel], _Mode], None] = {
        (ProblemView, "serialization"): None,
        (Health, "serialization"): None,
        (BigValue, "serialization"): None,
    }
    for call in calls:
        if call.body is not None:
            models[(call.body, "validation")] = None
        for model in call.answers.values():
            models[(model, "serialization")] = None
    return list(models)


def _schemas(models: list[tuple[type[BaseModel], _Mode]]) -> dict[str, Any]:
    _, definitions = models_json_schema(models, ref_template=_REF)
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas


def _operation(call: Call) -> dict[str, Any]:
    parameters = [_path_parameter(call, name) for name in pattern(call.path).groupindex]
    if call.query is not None:
        parameters += _query_parameters(call.query)
    if call.keyed:
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[\\x21-\\x7e]+$"},
                "example": PARAMETERS["Idempotency-Key"],
            }
        )
    if call.streamed:
        parameters.append(
            {
                "name": "Last-Event-ID",
                "in": "header",
                "description": "Where a stream goes on: the `id` of the last event seen. Counts instead of `after`.",
                "schema": {"type": "string", "pattern": "^[0-9]+$"},
                "example": PARAMETERS["Last-Event-ID"],
            }
        )
    operation: dict[str, Any] = {
        "operationId": call.name,
        "tags": [_tag(call)],
        "summary": inspect.getdoc(call.handler) or call.name,
        "description": "Needs no token." if call.scope is None else f"Needs the scope `{call.scope.value}`.",
        "parameters": parameters,
        "responses": _responses(call),
    }
    if call.scope is None:
        operation["security"] = []
    if call.body is not None or call.payload:
        schema = {} if call.body is None else _ref(call.body)
        content = {"application/json": {"schema": schema, "example": BODIES[call.name]}}
        operation["requestBody"] = {"required": not call.payload, "content": content}
    if call.document:
        json_type, yaml_type = DOCUMENTS
        content = {json_type: {"schema": {"type": "object"}, "example": DOCUMENTS[json_type]}}
        for media_type in sorted(YAML_TYPES):
            content[media_type] = {"schema": {"type": "object"}, "example": DOCUMENTS[yaml_type]}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _responses(call: Call) -> dict[str, Any]:
    responses = {str(status): _answer(status, model) for status, model in call.answers.items()}
    if call.streamed:
        responses.setdefault("200", {"description": HTTPStatus.OK.phrase, "content": {}})
        responses["200"]["content"][sse.MEDIA_TYPE] = {"schema": {"type": "string"}}
    for status in sorted({*(_EVERY_TICKET if call.scope is None else _EVERY_CALL), *call.problems}):
        responses[str(status)] = _response(status, PROBLEM_JSON, ProblemView, PROBLEMS[status].content())
    if call.method == "GET" and call.answers:
        responses["303"] = {
            "description": "The answer is over 5 MB, or over 6 MB with its quotes and backslashes "
            "escaped; `Location` reads it for five minutes."
        }
    return responses


def _answer(status: int, model: type[BaseModel]) -> dict[str, Any]:
    return _response(status, "application/json", model, ANSWERS[model])


def _response(status: int, media_type: str, model: type[BaseModel], example: Any) -> dict[str, Any]:
    content = {media_type: {"schema": _ref(model), "example": example}}
    return {"description": HTTPStatus(status).phrase, "content": content}


def _path_parameter(call: Call, name: str) -> dict[str, Any]:
    example = NAMES.get(call.path.split("/")[2]) if name == "name" else PARAMETERS.get(name)
    shown = {} if example is None else {"example": example}
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, **shown}


def _query_parameters(model: type[Incoming]) -> list[dict[str, Any]]:
    schema = model.model_json_schema()
    shared: dict[str, Any] = schema.get("$defs", {})
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": given.get("description", ""),
            # Most lists are comma-joined; repeating the parameter works as well.
            **({"style": "form", "explode": name in model.repeated} if _is_list(given) else {}),
            "schema": _inlined({key: value for key, value in given.items() if key != "description"}, shared),
        }
        for name, given in schema["properties"].items()
    ]


def _is_list(schema: dict[str, Any]) -> bool:
    return any(part.get("type") == "array" for part in (schema, *schema.get("anyOf", ())))


def _inlined(schema: Any, shared: dict[str, Any]) -> Any:
    """The schema with its references replaced: a parameter's schema has no place for definitions of its own."""
    if isinstance(schema, list):
        return [_inlined(item, shared) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(shared[schema["$ref"].rsplit("/", 1)[-1]], shared)
    return {key: _inlined(value, shared) for key, value in schema.items()}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}
