"""Models of request bodies and queries, checked once at the edge. The OpenAPI document is generated from them."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, StringConstraints, ValidationInfo, field_validator

from fanfold.engine.admission.lanes import MAX_PRIORITY
from fanfold.engine.language.duration import parse_duration
from fanfold.engine.record.run import Status

MAX_WAIT_SECONDS = 25
"""The longest wait in seconds: API Gateway ends a request after 30 s (HTTP API, hard limit)."""
MAX_DELAY_SECONDS = 900
"""SQS delays a message by at most 15 minutes."""
MAX_TAGS = 20
MAX_BATCH = 100
"""Runs in one call: their concurrent reservations and records stay far below API Gateway's 30 s."""

TAG_FILTER = re.compile(r"([A-Za-z0-9._/-]{1,64})(?:[:=](.{0,256}))?", re.DOTALL)
"""A tag's name and optional value. A name contains neither `:` nor `=`; a value may contain both."""
TagName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/-]{1,64}$")]
TagValue = Annotated[str, StringConstraints(max_length=256)]
Wait = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,62}$")]


class Incoming(BaseModel):
    """A document from outside. An unknown field is an error, so that no typing error is ignored.

    As a query: `exact` says that a parameter it does not have is an error too (proxies and caches add some, which
    elsewhere are passed over); the lists in `repeated` are not split at commas, for their values may have some.
    """

    exact: ClassVar[bool] = False
    repeated: ClassVar[frozenset[str]] = frozenset()

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class SubmitBody(Incoming):
    """A run to be accepted."""

    workflow: Name = Field(description="Name of a registered workflow.")
    version: Annotated[str, StringConstraints(max_length=100)] | None = Field(
        default=None, description="A version of it; without one, the current version."
    )
    input: Any = Field(default_factory=dict, description="Any JSON; `${input}` in the workflow's expressions.")
    lane: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        default=None,
        description="Lane within the workflow's class; without one, `normal`, or the best the token may use.",
    )
    priority: int | None = Field(
        default=None,
        ge=0,
        le=MAX_PRIORITY,
        strict=True,
        description="Instead of a lane: 0 to 9, 9 the most urgent. Of three lanes 9–7 are the first, 6–3 the second.",
    )
    tags: dict[TagName, TagValue] = Field(
        default_factory=dict, max_length=MAX_TAGS, description="Labels to find the run by."
    )
    delay: float | str = Field(
        default=0,
        description="Not before this long after acceptance: seconds, or a duration such as `30s`; at most 15 minutes. "
        "The workflow's timeouts count from then.",
    )

    @field_validator("priority")
    @classmethod
    def _not_beside_a_lane(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("lane") is not None:
            raise ValueError("a run has a lane or a priority, not both")
        return value

    @field_validator("delay", mode="before")
    @classmethod
    def _number_or_duration(cls, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError("a delay is a number of seconds or a duration such as 30s")
        if isinstance(value, str):
            seconds = parse_duration(value)
        elif not 0 <= value <= MAX_DELAY_SECONDS:  # before float(): an int may be too large for one
            raise ValueError(_DELAY_LIMIT)
        else:
            seconds = float(value)
        if seconds > MAX_DELAY_SECONDS:
            raise ValueError(_DELAY_LIMIT)
        return seconds


_DELAY_LIMIT = f"a delay is 0 to {MAX_DELAY_SECONDS} seconds (15 minutes, the limit of SQS)"


class BatchBody(Incoming):
    """Runs to be accepted, each for itself."""

    # Looked at one by one: what is wrong with one must not spoil the others.
    runs: list[SkipValidation[SubmitBody]] = Field(max_length=MAX_BATCH, description="At most 100.")


class ForkBody(Incoming):
    """Where a fork goes on, and with what."""

    from_step: Annotated[str, StringConstraints(max_length=64)] = Field(
        description="The step to begin at: it and everything downstream of it runs anew."
    )
    input: Any = Field(default=None, description="Another input; without one, the run's own.")
    version: Annotated[str, StringConstraints(max_length=100)] | None = Field(
        default=None, description="Another version of the workflow; without one, the run's own."
    )


class RunQuery(Incoming):
    """How a run is to be shown."""

    wait: float = Field(
        default=0, ge=0, allow_inf_nan=False, description="Seconds to wait for its end; more than 25 counts as 25."
    )
    steps: list[str] | None = Field(
        default=None, description="Only these steps, comma-separated; `none` for no steps at all."
    )
    inline: bool = Field(default=False, description="Big values themselves instead of references to them.")
    progress: bool = Field(default=False, description="Count the items of open maps: one more read for each.")


class EventsQuery(Incoming):
    """Which events of a run."""

    after: int = Field(default=0, ge=0, description="Only events with a higher `seq`.")
    limit: int = Field(default=100, ge=1, le=1000, description="At most this many.")
    wait: float = Field(
        default=0, ge=0, allow_inf_nan=False, description="Seconds to wait for the next one; more than 25 counts as 25."
    )


class ListQuery(Incoming):
    """Which page of a list."""

    limit: int = Field(default=50, ge=1, le=200, description="At most this many; a page may hold fewer.")
    cursor: str | None = Field(
        default=None, description="Where to go on: a `cursor` or `next_cursor` of this very listing."
    )


class RunsQuery(ListQuery):
    """Which runs. A filter there is none of is an error: passed over, it would show runs that nobody asked for."""

    exact: ClassVar[bool] = True
    repeated: ClassVar[frozenset[str]] = frozenset({"tag"})

    status: list[Status] = Field(default_factory=list, description="Only these, comma-separated.")
    workflow: list[str] = Field(default_factory=list, description="Only runs of these workflows, comma-separated.")
    tag: list[str] = Field(
        default_factory=list,
        description="Only runs that have this tag: `name`, `name:value` or `name=value`. Repeated: all of them.",
    )

    @field_validator("tag")
    @classmethod
    def _name_and_perhaps_value(cls, value: list[str]) -> list[str]:
        for text in value:
            if not TAG_FILTER.fullmatch(text):
                raise ValueError(
                    f"{text[:100]!r} is none of name, name:value and name=value; "
                    "a name is 1 to 64 letters, digits and . _ / -, a value at most 256 characters"
                )
        return value


class WorkflowQuery(Incoming):
    """Which version of a workflow."""

    version: Annotated[str, StringConstraints(max_length=100)] | None = Field(
        default=None, description="Without one, the current version."
    )
