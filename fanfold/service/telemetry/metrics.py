"""What is counted and measured: the one place for the metrics' names, units and dimensions.

Functions write them (`fanfold.service.telemetry.reporting`); alarms and dashboard read them (`fanfold.cdk.metrics`).
Each metric belongs to one set of dimensions. All values but the names of workflows are known at deployment: CloudWatch
takes $0.30 a month for each series that has data, so never an id or a tenant. Standard library
only.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Self

NAMESPACE = "Fanfold"


class Dimensions(Enum):
    """The sets of dimensions there are; `service` is the deployment (`Settings.service`)."""

    SERVICE = ("service",)
    CLASS = ("service", "class")
    LANE = ("service", "class", "lane")  # without `lane` where the setting `lane_metrics` is off
    REASON = ("service", "reason")  # of `Refusal`, or of `fanfold.engine.record.run.Reason`
    FUNCTION = ("service", "function")  # of `FunctionName`
    WORKFLOW = ("service", "workflow")  # only where the setting `workflow_metrics` is on


class Unit(StrEnum):
    """CloudWatch's units, those that are used."""

    COUNT = "Count"
    SECONDS = "Seconds"
    MILLISECONDS = "Milliseconds"


class Refusal(StrEnum):
    """Why a submit was not accepted although nothing was wrong with it."""

    QUEUE_FULL = "queue_full"  # 429: the class holds as many queued runs as it may
    RATE_LIMITED = "rate_limited"  # 429: the tenant submits faster than it may
    UNAVAILABLE = "unavailable"  # 503: a service of AWS throttled or failed


class FunctionName(StrEnum):
    """The functions by their module, those that write metrics.

    Not the authorizer: Powertools would double its cold start. Its cold starts are in its log's REPORT lines.
    """

    API = "api"
    WATCH = "watch"
    WORKER = "worker"
    FANOUT = "fanout"
    DEADLETTER = "deadletter"
    SWEEPER = "sweeper"


_Fact = tuple[str, Dimensions, Unit]


def _service(name: str, unit: Unit = Unit.COUNT) -> _Fact:
    return name, Dimensions.SERVICE, unit


def _of_class(name: str, unit: Unit = Unit.COUNT) -> _Fact:
    return name, Dimensions.CLASS, unit


class Metric(StrEnum):
    """Everything that is counted or measured: its CloudWatch name, with its `dimensions` and its `unit`.

    `own_dimensions` is how many dimensions it has beside the service.
    """

    dimensions: Dimensions
    unit: Unit
    dimension_names: tuple[str, ...]
    own_dimensions: int

    # Are users served?
    RUNS_ACCEPTED = _of_class("RunsAccepted")
    RUNS_REFUSED = _service("RunsRefused")  # 429 or 503: `Refusal`
    REFUSALS = ("Refusals", Dimensions.REASON, Unit.COUNT)  # the same, by reason

    # Is work getting done?
    RUNS_STARTED = _of_class("RunsStarted")  # claimed for the first time; by lane it is the count of QueueWait's values
    RUNS_SUCCEEDED = _of_class("RunsSucceeded")
    RUNS_FAILED = _of_class("RunsFailed")
    RUNS_CANCELLED = _of_class("RunsCancelled")
    FAILURES = ("Failures", Dimensions.REASON, Unit.COUNT)  # failed runs, by reason
    STEPS = _of_class("Steps")  # steps that ended, succeeded or failed
    RETRIES = _of_class("Retries")  # attempts that failed and are made again
    INTERRUPTED = _of_class("Interrupted")  # attempts whose worker died, was lost or had to stop
    MAP_ITEMS = _of_class("MapItems")  # items of maps that ended

    # In time? Distributions: every value is told.
    QUEUE_WAIT = ("QueueWait", Dimensions.LANE, Unit.MILLISECONDS)  # from when a run may begin to its first claim
    RUN_DURATION = _of_class("RunDuration", Unit.MILLISECONDS)  # from acceptance to the end
    ENGINE_OVERHEAD = _of_class("EngineOverhead", Unit.MILLISECONDS)
    """What a worker needed for a run it held, beside the run's attempts and the waits it sat out."""

    # What does it cost? Other than AWS's own metrics, these say what our own code asked for.
    TABLE_CALLS = _service("TableCalls")
    TABLE_READ_UNITS = _service("TableReadUnits")
    TABLE_WRITE_UNITS = _service("TableWriteUnits")  # indexes included; a refused conditional write is not told
    QUEUE_CALLS = _service("QueueCalls")  # of our own code: the mappings' polls are not among them
    BUCKET_READS = _service("BucketReads")
    BUCKET_WRITES = _service("BucketWrites")
    MAP_BATCHES = _service("MapBatches")  # batches of maps that Step Functions had worked on
    COLD_STARTS = ("ColdStarts", Dimensions.FUNCTION, Unit.COUNT)

    # What is about to break?
    LEASE_RENEWALS = _of_class("LeaseRenewals")
    CLAIMS_LOST = _of_class("ClaimsLost")  # a claim found the run taken; those of repeated envelopes, too
    RUNS_LOST = _of_class("RunsLost")  # a holder lost its run: its lease ran out, or somebody else has it
    FENCED_WRITES = _of_class("FencedWrites")  # of them, those that learned it by a write that was refused
    CRASHES = _of_class("Crashes")  # a claim found a running record with a dead lease
    OVERDUE = _of_class("OverdueSeconds", Unit.SECONDS)  # how long the longest overdue run is overdue
    SLOTS_LEAKED = _service("SlotsLeaked")  # a slot could not be released; the bound is one short until healed
    SLOTS_REPAIRED = _service("SlotsRepaired")  # leaked slots that the sweeper gave back to their class's bound
    EFFECTS_FAILED = _service("EffectsFailed")  # a wake, or a map's start or stop, that failed after its commit
    DUPLICATES = _service("Duplicates")  # messages and submits that only repeated what had been done
    OUTAGES = _service("Outages")  # messages put back because a service did not do its part
    CLOCK_OFF = _service("ClockOff")  # messages handed back, and asks for the time, of processes whose clock is off
    DROPPED = _service("Dropped")  # messages given up on purpose: letters of runs further on, envelopes too old
    REPAIRED = _service("Repaired")  # what the sweeper found in need: lost wakes, dead leases, stranded queued runs
    DEAD_LETTERS = _service("DeadLetters")  # messages that reached a dead-letter queue
    UNREADABLE = _service("Unreadable")  # messages and records that this code can't read, each time they are met
    TASKS_NOT_LOADED = _service("TasksNotLoaded")
    """Modules of tasks that could not be imported, at each process's start; claims of runs that call a missing task."""
    SWEEP_TURN_SECONDS = _service("SweepTurnSeconds", Unit.SECONDS)  # what the cursor takes for all active runs

    # By workflow, where that is asked for.
    WORKFLOW_SUCCEEDED = ("WorkflowSucceeded", Dimensions.WORKFLOW, Unit.COUNT)
    WORKFLOW_FAILED = ("WorkflowFailed", Dimensions.WORKFLOW, Unit.COUNT)
    WORKFLOW_DURATION = ("WorkflowDuration", Dimensions.WORKFLOW, Unit.MILLISECONDS)

    def __new__(cls, name: str, dimensions: Dimensions = Dimensions.SERVICE, unit: Unit = Unit.COUNT) -> Self:
        """A member is its name."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.dimensions = dimensions
        member.unit = unit
        member.dimension_names = dimensions.value
        member.own_dimensions = len(dimensions.value) - 1
        return member
