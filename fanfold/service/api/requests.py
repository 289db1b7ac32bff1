"""A request from API Gateway in either payload format."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fanfold.engine.errors import ValidationIssue
from fanfold.engine.payload import MAX_DEPTH, Json, deeper_than, parse
from fanfold.service.api.problems import invalid_body, invalid_parameter, malformed, too_large
from fanfold.service.api.request_models import Incoming

_LENGTH = re.compile(r"[0-9]{1,9}")
_KEY = re.compile(r"[\x21-\x7e]{1,255}")

Model = TypeVar("Model", bound=BaseModel)
Query = TypeVar("Query", bound=Incoming)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request: names of headers in lower case, every value of a query parameter, the body's own bytes."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    identity: Mapping[str, str] = field(default_factory=dict)

    @property
    def content_type(self) -> str:
        """The media type, lower case, without parameters."""
        return self.headers.get("content-type", "").split(";")[0].strip().lower()

    def json(self) -> Json:
        """The body as JSON; refused with 400 if it is malformed or ambiguous."""
        try:
            # Strictly: json.loads would guess UTF-16 and let lone surrogates pass.
            value = parse(self.body.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise malformed("the body is not UTF-8") from error
        except ValueError as error:
            raise malformed(str(error)) from error
        check_depth(value)
        return value

    def idempotency_key(self) -> str | None:
        """The `Idempotency-Key` header; refused with 422 unless it is 1–255 visible ASCII characters."""
        key = self.headers.get("idempotency-key")
        if key is not None and not _KEY.fullmatch(key):
            raise invalid_parameter("Idempotency-Key", "must be 1–255 visible ASCII characters")
        return key


def request_of(event: Mapping[str, Any], *, path: str, max_body_bytes: int) -> Request:
    """The request in a proxy event of payload format 2.0 or 1.0; refused where the body is too large or broken."""
    http = event.get("requestContext", {}).get("http", {})
    return Request(
        method=str(http.get("method") or event.get("httpMethod") or "GET").upper(),
        path=path,
        query=_query(event),
        headers={str(name).lower(): str(value) for name, value in (event.get("headers") or {}).items()},
        body=_body(event, max_body_bytes),
        identity=_identity(event),
    )


def _query(event: Mapping[str, Any]) -> dict[str, list[str]]:
    """Format 2.0 joins repeated parameters with commas; the raw string still knows them apart."""
    result: dict[str, list[str]] = {}
    raw = event.get("rawQueryString")
    if raw:
        for name, value in parse_qsl(raw, keep_blank_values=True):
            result.setdefault(name, []).append(value)
        return result
    many = event.get("multiValueQueryStringParameters")
    if many:
        return {name: list(values) for name, values in many.items()}
    return {name: [value] for name, value in (event.get("queryStringParameters") or {}).items()}


def _body(event: Mapping[str, Any], limit: int) -> bytes:
    text = event.get("body") or ""
    encoded = bool(event.get("isBase64Encoded"))
    if len(text) > (limit * 4 // 3 + 4 if encoded else limit):
        raise too_large(f"max_body_bytes: the body has more than {limit:,} bytes, the most there may be")
    if encoded:
        try:
            body = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise malformed("the body is not the base64 it is said to be") from error
    else:
        body = text.encode("utf-8", "surrogatepass")
        if "\ufffd" in text and len(body) != _sent_bytes(event, len(body)):
            # API Gateway decodes text, and replaces bytes that are not UTF-8 by this character.
            raise malformed("the body is not UTF-8")
    if len(body) > limit:
        raise too_large(f"max_body_bytes: the body has {len(body):,} bytes; {limit:,} is the most")
    return body


def _sent_bytes(event: Mapping[str, Any], otherwise: int) -> int:
    """The length of the body as sent, if the headers say it."""
    headers = {str(name).lower(): str(value) for name, value in (event.get("headers") or {}).items()}
    stated = headers.get("content-length", "")
    return int(stated) if _LENGTH.fullmatch(stated) and "content-encoding" not in headers else otherwise


def _identity(event: Mapping[str, Any]) -> dict[str, str]:
    """The authorizer's context: format 2.0 wraps it in `lambda`, 1.0 does not."""
    authorizer = event.get("requestContext", {}).get("authorizer") or {}
    context = authorizer.get("lambda", authorizer) or {}
    return {str(name): str(value) for name, value in context.items() if value is not None}


def check_depth(value: Json) -> None:
    """Refuse with 400 a value that is nested deeper than `MAX_DEPTH`."""
    if deeper_than(value, MAX_DEPTH):
        raise malformed(f"the body is nested deeper than {MAX_DEPTH} levels")


def body_as(model: type[Model], request: Request) -> Model:
    """The JSON body as a model; refused with every issue at once."""
    return value_as(model, request.json())


def value_as(model: type[Model], value: Json) -> Model:
    """A JSON value as a model; refused with every issue at once, with pointers into the value."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid_body(
            [ValidationIssue(pointer=pointer(e["loc"]), detail=_sentence(e)) for e in error.errors(include_url=False)]
        ) from error


def query_as(model: type[Query], request: Request) -> Query:
    """The query as a model: lists take repeated and comma-joined values.

    An unknown parameter is ignored, or refused if the model is `exact`.
    """
    given: dict[str, object] = {}
    if model.exact and (unknown := sorted(set(request.query) - set(model.model_fields))):
        known = ", ".join(model.model_fields)
        raise invalid_parameter(unknown[0][:100], f"there is no such parameter; there are: {known}")
    for name, info in model.model_fields.items():
        values = request.query.get(name)
        if values is None:
            continue
        if any(get_origin(kind) is list for kind in (info.annotation, *get_args(info.annotation))):
            split = [[value] if name in model.repeated else value.split(",") for value in values]
            if model.exact and not all(any(parts) for parts in split):
                raise invalid_parameter(name, "is blank; leave it out to ask for all", status=400)
            given[name] = [part for parts in split for part in parts if part]
        else:
            given[name] = values[-1]
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise invalid_parameter(str(first["loc"][0]) if first["loc"] else "query", _sentence(first)) from error


def _sentence(error: ErrorDetails) -> str:
    """The message of an error, without pydantic's prefix "Value error"."""
    return error["msg"].removeprefix("Value error, ")


def pointer(parts: Sequence[int | str]) -> str:
    """RFC 6901 JSON pointer of a path; the root is the empty string."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
