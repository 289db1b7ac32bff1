"""The models of Amazon Bedrock that the steps of a deployment may call. By default there are none."""

from __future__ import annotations

import json
import re
from typing import Any, Final

ASK: Final = ("bedrock:InvokeModelWithResponseStream",)
"""The permissions for ConverseStream (Bedrock's API reference)."""

_ARN = re.compile(r"arn:[a-z-]+:bedrock:[a-z0-9-]*:\d*:[a-z-]+/[A-Za-z0-9._:/-]+")
_ID = re.compile(r"[a-z0-9]+\.[A-Za-z0-9.:-]+")
_ELSEWHERE: Final = frozenset({"us", "eu", "apac", "global", "jp", "au", "ca"})
"""Prefixes of inference profile ids. A profile sends requests to other regions."""


def models_of(value: Any) -> tuple[str, ...]:
    """Parse the context key: a JSON list of ids and ARNs. Raises ValueError naming the wrong one."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"bedrock_models: no JSON: {error}") from error
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(model, str) for model in value):
        raise ValueError("bedrock_models: must be a JSON list of ids or ARNs of models")
    for model in value:
        if _ID.fullmatch(model) and model.split(".")[0] in _ELSEWHERE:
            raise ValueError(
                f"bedrock_models: {model} is an inference profile, which asks models in several regions: "
                "name its ARN and the ARN of the model in each of them"
            )
        if not (_ARN.fullmatch(model) or _ID.fullmatch(model)):
            raise ValueError(f"bedrock_models: {model!r} is neither the id nor the ARN of a model (no wildcards)")
    return tuple(value)


def arn_of(model: str, *, partition: str, region: str) -> str:
    """The ARN to grant: the model's own, or that of the foundation model with this id in this region."""
    return model if model.startswith("arn:") else f"arn:{partition}:bedrock:{region}::foundation-model/{model}"
