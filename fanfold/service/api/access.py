"""The caller, its scopes, and the submit rate of a tenant."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fanfold.engine.admission.lanes import UNBOUND, LaneLimit
from fanfold.engine.tenant import TENANT
from fanfold.service.api.problems import forbidden, throttled, unauthorized


class Scope(StrEnum):
    """What a token may do. No scope includes another: without READ answers contain no payloads."""

    SUBMIT = "submit"  # start runs
    READ = "read"  # look at runs with their inputs, outputs and events, at workflows and queues
    OPERATE = "operate"  # cancel, pause, resume, signal, redrive, fork
    ADMIN = "admin"  # register workflows


class Verdict(StrEnum):
    """What the authorizer found out about a token. The authorizer never denies; the handler answers."""

    OK = "ok"
    UNKNOWN = "unknown"
    REVOKED = "revoked"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The owner of the request's token. `bound` says which lanes the token may use."""

    tenant: str
    scopes: frozenset[str]
    owner: str
    bound: LaneLimit = UNBOUND

    @property
    def reads(self) -> bool:
        """Whether the token shows inputs, outputs, errors and events."""
        return Scope.READ.value in self.scopes

    def must(self, scope: Scope) -> None:
        """Refuse with 403 unless the token has this scope."""
        if scope.value not in self.scopes:
            raise forbidden(f"the token lacks the scope {scope.value!r}")


def caller_of(identity: Mapping[str, str]) -> Caller:
    """The caller by the authorizer's context; refused with 401 without one."""
    verdict = identity.get("verdict")
    tenant = identity.get("tenant", "")
    if verdict != Verdict.OK or not TENANT.fullmatch(tenant):
        reason = {Verdict.REVOKED: "the token was revoked", Verdict.EXPIRED: "the token has expired"}
        raise unauthorized(reason.get(Verdict(verdict), _UNKNOWN) if verdict in set(Verdict) else _UNKNOWN)
    highest = identity.get("max_priority")
    return Caller(
        tenant=tenant,
        scopes=frozenset(identity.get("scopes", "").split()),
        owner=identity.get("owner", ""),
        bound=LaneLimit(max_lane=identity.get("max_lane"), max_priority=None if highest is None else int(highest)),
    )


_UNKNOWN = "a bearer token that this deployment knows is needed"
_MAX_TENANTS = 10_000


class SubmitRate:
    """A token bucket per tenant in this process: approximate, without a call.

    It holds a minute's submits and refills evenly. 0 per minute means no limit.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, tenant: str, *, monotonic: float) -> None:
        """Count a submit of a tenant at a monotonic time in seconds; refused with 429 beyond the limit."""
        if self._per_minute <= 0:
            return
        level, then = self._buckets.pop(tenant, (float(self._per_minute), monotonic))
        per_second = self._per_minute / 60
        level = min(float(self._per_minute), level + max(0.0, monotonic - then) * per_second)
        allowed = level >= 1
        self._buckets[tenant] = (level - 1 if allowed else level, monotonic)
        if len(self._buckets) > _MAX_TENANTS:
            self._buckets.popitem(last=False)
        if not allowed:
            raise throttled(
                f"a tenant may submit {self._per_minute} runs a minute", retry_after_seconds=(1 - level) / per_second
            )
