"""The JSON files that a run itself writes: one model a file. Each pass declares its own.

The models name what a reader uses: other keys are let through, and what older runs lack has a default. What is computed
with (`Verdict`, `Effect`, `Noise`, `Standings`) is a dataclass; an open end is infinite in memory, null in the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, Field, StrictBool, TypeAdapter, model_serializer, model_validator
from pydantic.json_schema import SkipJsonSchema

from ..spec.conditions import checked
from ..spec.entered import EnteredName
from ..spec.words import Cause
from ..stats.confidence import Interval, LookPlan
from .forms import (
    JUDGED,
    MAYBE,
    Alpha,
    Amount,
    Count,
    HighEnd,
    LogHigh,
    LogLow,
    LogValue,
    LowEnd,
    Number,
    RatioHigh,
    RatioLow,
    RatioValue,
    SecondsMore,
    Seed,
    Shape,
    Size,
    Some,
    Text,
    Value,
    has_form,
    null_is,
    says,
    without_damaged,
)
from .gate_schema import Confirmed, Excluded, Gate, Trace, TraceDifference
from .machine_schema import Machine, Spending
from .sitting_schema import Apart, SideEnvironment, Sitting, Sources

ABSENT_AT_0 = Field(exclude_if=lambda value: not value)

FORMAT = 1  # of the run folder; a reader refuses any other


class Workload(Shape):
    """A workload, with the sizes that judging asks about."""

    name: Annotated[Text, says("its name")]
    kind: Annotated[Text | None, JUDGED, says('"prefill", "decode", "generate", "component", "call"')] = None
    payload: Annotated[Text | None, MAYBE, says("the function that makes the arguments of a call")] = None
    check: Annotated[Text | None, MAYBE, says("the function that compares two answers, where not by ==")] = None
    geometry: Annotated[Text | None, JUDGED, says("shape of its model; empty for a component")] = None
    tokens: Annotated[Size, JUDGED, says("length of a call")] = 0
    new_tokens: Annotated[Size | None, JUDGED, says("tokens that a call generates")] = None
    context: Annotated[Size, JUDGED, says("tokens in the cache before a call")] = 0
    component: Annotated[Text | None, MAYBE, says("which part of the model")] = None
    batch: Annotated[Size | None, MAYBE, says("number of sequences")] = None
    chunk: Annotated[Size | None, MAYBE, says("tokens of each step of a prefill")] = None
    lengths: Annotated[Text | None, MAYBE, says('"repeated", "trace", ...')] = None
    dtype: Annotated[Text | None, MAYBE, says("type of its numbers")] = None
    threads: Annotated[Size | None, MAYBE, says("threads that it computes on")] = None


class Clock(Shape):
    """The clock that counts."""

    default: Annotated[Text | None, JUDGED, says('"cpu" (of the thread), "wall" or "device"')] = None
    wall_variants: Annotated[list[Text], JUDGED, says("variants with threads of their own, timed by wall")] = []


class ExperimentRecord(Shape):
    """One workload of a run, its variants, and the results of their gates."""

    workload: Workload
    variants: Annotated[list[Text], says("what was built and timed, controls included")]
    baseline: Annotated[Text | None, JUDGED, says("what the variants are compared with")] = None
    clock: Clock = Clock()
    rounds: Annotated[Count, JUDGED, says("finished rounds")] = 0
    horizon: Annotated[Some | None, JUDGED, says("rounds that its budget should give, by costs alone")] = None
    blocks: Annotated[Count, MAYBE, says("of these, blocks: one pair in two processes that share a core")] = 0
    apart: Annotated[list[Apart] | None, MAYBE, says("pairs in rounds of their own; null until it is decided")] = None
    seconds: Annotated[Amount | None, says("time that its rounds took, seconds")] = None
    sampled_seconds: Annotated[Amount | None, MAYBE, says("of that, inside timed samples")] = None
    gates: Annotated[dict[str, Gate], says("result of the logits gate by variant")] = {}
    traces: Annotated[dict[str, Trace], says("operations by variant")] = {}
    trace_differences: Annotated[list[TraceDifference], says("the pairs whose operations were compared")] = []
    confirmations: Annotated[list[Confirmed], says("ratios that were measured again")] = []
    excluded: Annotated[list[Excluded], says("variants that were excluded on this workload")] = []


class Checkpoint(Shape):
    """The weights of a geometry."""

    hidden_size: Annotated[Size | None, JUDGED, says("width of the model")] = None
    digest: Annotated[Text | None, JUDGED, says("SHA-256 of the weights")] = None
    synthetic: Annotated[StrictBool | None, MAYBE, says("whether they were drawn from a seed")] = None


class Device(Shape):
    """The device that the models computed on."""

    kind: Annotated[Text | None, JUDGED, says('"cpu" or "cuda"')] = None


class Environment(Shape):
    """The machine: what its one line shows, and what makes two machines different."""

    cpu_model: Annotated[Text | None, says("name of the processor")] = None
    cpu_flags: Annotated[list[Text] | None, says("its instruction sets")] = None
    cores: Annotated[Number | None, says("cores that the run could use")] = None
    threads: Annotated[Number | None, says("threads of the measuring process")] = None
    memory_bytes: Annotated[Number | None, says("main memory")] = None
    transparent_huge_pages: Annotated[Text | None, says("the kernel's setting for 2 MiB pages")] = None
    torch: Annotated[Text | None, says("version of torch")] = None
    libc: Annotated[Text | None, says("version of the C library")] = None
    packages: Annotated[dict[str, Text | None] | None, says("version by package")] = None
    malloc: Annotated[dict[str, Any] | None, says("environment variables of the allocator")] = None
    device: Device | None = None
    commit: Annotated[dict[str, Any] | None, says("commit of the workbench, and whether files differed from it")] = None


@dataclass(frozen=True)
class Control:
    """Two sides that are the same, measured like any other pair. It fired where its interval says that they differ.

    `centre`, `low` and `high` are log ratios.
    """

    workload: Annotated[Text, says("where it was timed")]
    kind: Annotated[Text, says('"aa": the same variant twice; "copy": its source imported a second time')]
    variant: Annotated[Text, says("the second side, NAME@aa or NAME@copy; the first is NAME")]
    centre: Annotated[RatioValue, Field(alias="ratio", description="t_baseline / t_variant")]
    low: Annotated[RatioLow, says("lower end of its interval; null: open")]
    high: Annotated[RatioHigh, says("upper end; null: open")]
    rounds: Annotated[Count, says("number of rounds")]
    fired: Annotated[StrictBool, says("whether the interval leaves out 1, or the rounds contradict each other")]

    @property
    def baseline(self) -> str:
        """The first side."""
        return EnteredName(self.variant).original

    @property
    def interval(self) -> Interval:
        """Of the log ratio."""
        return Interval(self.centre, self.low, self.high, self.rounds)

    @property
    def shift(self) -> float:
        """Largest log ratio, either way, that the interval allows."""
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class Noise:
    """The controls of a run, and what they show in one line. `damaged`: what is wrong with those that are left out."""

    controls: Annotated[tuple[Control, ...], says("every control")] = ()
    line: Annotated[Text, says("the summary")] = ""
    typical: Annotated[
        Amount, ABSENT_AT_0, says("log units by which controls differ typically, where all together show that they do")
    ] = 0.0
    damaged: Annotated[tuple[Text, ...], Field(exclude=True), SkipJsonSchema()] = ()

    @model_validator(mode="before")
    @classmethod
    def _leave_out_damaged(cls, content: Any) -> Any:
        return without_damaged(content, "controls", Control)


class Manifest(Shape):
    """The run. Parts may be missing, but what is there must be right."""

    sealed: Annotated[StrictBool | None, MAYBE, says("true once the run has ended and has SHA256SUMS")] = None
    format: Annotated[Count, says("version of the run folder")] = FORMAT
    id: Annotated[Text | None, JUDGED, says("name of the run")] = None
    started: Annotated[Text | None, JUDGED, says("start, ISO 8601, UTC")] = None
    finished: Annotated[Text | None, MAYBE, says("end; null until then")] = None
    status: Annotated[Text | None, JUDGED, says('"running", "complete", "interrupted" or "failed"')] = None
    mode: Annotated[Text | None, MAYBE, says('"claims", "compare", "gates"; "fleet": of several machines')] = None
    command: Annotated[list[Text], MAYBE, says("command line that started the run")] = []
    seed: Annotated[Seed | None, JUDGED, says("seed of the random orders and weights")] = None
    options: Annotated[dict[str, Any], MAYBE, says("options that it keeps when it goes on")] = {}
    budget_seconds: Annotated[Amount | None, MAYBE, says("time for rounds, of all sittings, seconds")] = None
    sittings: Annotated[list[Sitting], MAYBE, says("when it was measured; `--continue` adds one")] = []
    sources: Annotated[Sources | None, MAYBE, says("the code, so that a run that goes on is still one run")] = None
    passes: Annotated[list[Text], MAYBE, says("metrics whose pass was made")] = []
    alpha: Annotated[Alpha, JUDGED, says("chance that a verdict is wrong")] = 0.01
    unit: Annotated[Text, JUDGED, says('what gives one log ratio: "life" (a process of its own), "round"')] = "round"
    ad_hoc: Annotated[list[tuple[Text, Text]], says("pairs [baseline, variant] that --compare asked for")] = []
    fail_if: Annotated[list[Annotated[Text, AfterValidator(checked)]], says('when it fails, such as "slower:5"')] = []
    dispute: Annotated[dict[str, Any], MAYBE, says("what is asked about the claims, as `dispute.toml` has it")] = {}
    environment: Environment | None = None
    environments: Annotated[dict[str, SideEnvironment], MAYBE, says("by side that has one of its own")] = {}
    spending: Annotated[Spending | None, MAYBE, says('of a fleet: "replicate" or "split"')] = None
    machines: Annotated[list[Machine], MAYBE, says("of a fleet: its machines, each with a run of its own")] = []
    request: Annotated[dict[str, Any] | None, MAYBE, says("of a fleet: what was asked for, so that it can go on")] = (
        None
    )
    checkpoints: Annotated[dict[str, Checkpoint] | None, says("weights by geometry")] = None
    experiments: Annotated[list[ExperimentRecord], says("one entry for each workload")] = []
    excluded: Annotated[list[Excluded], says("variants that were excluded on every workload")] = []
    noise: Annotated[Noise | None, MAYBE, says("its controls; only once it was judged")] = None


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One comparison on one workload, or one value of a pass, with its interval.

    In memory `ratio` (for a value with a `unit`: the value itself) is NaN without rounds; while there are too few
    rounds for an interval, `low` is 0 (of a value minus infinity) and `high` infinite. For a comparison without a claim
    `verdict` is faster, slower, same, inconclusive or not evidence. `seconds_more` is NaN where nothing can be said.
    """

    workload: Annotated[Text, says("where it was measured")]
    variant: Annotated[Text, says("the side that is asked about")]
    baseline: Annotated[Text, says("the side that it is compared with; may be empty for a value")]
    metric: Annotated[Text, says('"cpu time", "wall time to first token", ...; for a value, what it is of')] = ""
    machine: Annotated[Text, says("on which machine; only there in a run of several machines")] = ""
    unit: Annotated[Text, says("unit of a value; only there for a value")] = ""
    ratio: Annotated[
        Value,
        Field(
            validation_alias=AliasChoices("ratio", "value"),
            description="t_baseline / t_variant: above 1 the variant is faster; for a value the key is `value`",
        ),
    ] = math.nan
    low: Annotated[LowEnd, says("lower end of its interval; null: open")] = -math.inf
    high: Annotated[HighEnd, says("upper end; null: open")] = math.inf
    rounds: Annotated[Count, says("number of rounds")]
    seconds: Annotated[Amount, says("wall time of the samples behind it, both sides, seconds")]
    verdict: Annotated[Text, says("supported, refuted, inconclusive, not evidence or not measurable here")]
    cause: Annotated[Cause, says("what makes it so, in a word that code may ask for; else none")] = Cause.NONE
    reason: Annotated[Text, says("why the verdict is as it is, for people; may be empty")] = ""
    notes: Annotated[tuple[Text, ...], says("what a reader should know besides")] = ()
    seconds_more: Annotated[SecondsMore, MAYBE, says("seconds more that would settle it; null: none would")] = math.nan
    horizon: Annotated[Some | None, says("rounds along which alpha was spent; absent: it was not known")] = None
    one_sided: Annotated[StrictBool, says("whether each end holds at alpha, and not both together")] = False

    def plan(self, alpha: float) -> LookPlan:
        """How it was looked at."""
        return LookPlan(alpha, self.horizon, self.one_sided)

    @property
    def said(self) -> tuple[str, ...]:
        """All that there is to say of it: the reason, then the notes."""
        return (self.reason, *self.notes) if self.reason else self.notes

    @model_serializer(mode="wrap")
    def _row(self, dump: Callable[[Effect], dict[str, Any]]) -> dict[str, Any]:
        row, unknown = dump(self), math.isnan(self.seconds_more) and "seconds_more"
        absent = {unknown, *(name for name in ("machine", "horizon", "one_sided") if not getattr(self, name))}
        if self.unit:
            return {"value" if key == "ratio" else key: value for key, value in row.items() if key not in absent}
        no_bound = {name: row[name] or None for name in ("ratio", "low", "high")}  # a ratio of 0 is none
        return {key: value for key, value in (row | no_bound).items() if key not in {"unit", *absent}}


@dataclass(frozen=True)
class Ends:
    """What is claimed: ratios, or values in the unit of the effects."""

    low: Annotated[Number | None, says("lower end; null: none")] = None
    high: Annotated[Number | None, says("upper end; null: none")] = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one part of a claim."""

    claim: Annotated[Text, says("name of the claim; ad-hoc for a comparison without one")]
    part: Annotated[Text | None, says("name of the part, where a claim has several")] = None
    who: Annotated[tuple[Text, ...], says("who said it")]
    title: Annotated[Text, says("the claim in a few words")] = ""
    statement: Annotated[Text, says("the claim in a sentence")] = ""
    verdict: Annotated[Text, says("supported, refuted, depends, inconclusive, not evidence or not measurable here")]
    reason: Annotated[Text, says("why")]
    cause: Annotated[Cause, says("what makes it so, in a word that code may ask for; else none")] = Cause.NONE
    alpha: Annotated[Alpha, null_is(math.nan), says("of each effect; null: bounds from experience")] = math.nan
    claimed: Annotated[Text, says("`region` in words")] = ""
    due_to: Annotated[Text, says("of a claim about the split: which sides bring the speed-up")] = ""
    region: Ends | None = None
    together: Annotated[bool, says("whether it holds at once with all others that say so (Holm)")] = False
    effects: Annotated[tuple[Effect, ...], says("the evidence")]


Key = tuple[str, str]  # (workload, variant)


@dataclass(frozen=True)
class WorkloadResult:
    """One workload of a run: what was done, on which weights, and what its variants are compared with."""

    workload: Annotated[dict[str, Any], says("the workload, as in run.json")]
    checkpoint: Annotated[Text | None, says("SHA-256 of the weights; null: none")]
    reference: Annotated[Text | None, Field(alias="against", description="what its variants are compared with")]
    bias: Annotated[Amount, says("by how many log units a ratio may be off, by controls that fired")]


@dataclass(frozen=True)
class RelativeTime:
    """The time of one variant on one workload, relative to the reference: log t_reference / t_variant.

    The interval is at the run's own alpha, not at a share of it for each row.
    """

    workload: Annotated[Text, says("where it was timed")]
    variant: Annotated[Text, says("what was timed")]
    clock: Annotated[Text, says("cpu, wall or device")]
    log_ratio: Annotated[LogValue, says("centre of the interval; null: no rounds")]
    low: Annotated[LogLow, says("lower end; null: open")]
    high: Annotated[LogHigh, says("upper end; null: open")]
    rounds: Annotated[Count, says("number of rounds")]
    unstable: Annotated[StrictBool, says("whether the ratio drifted while it was measured")]
    faults: Annotated[Number, says("page faults a call, more than those of the reference")]

    @property
    def interval(self) -> Interval:
        """Of the log ratio."""
        return Interval(self.log_ratio, self.low, self.high, self.rounds, self.unstable)


@dataclass(frozen=True, kw_only=True)
class Standings:
    """A run as relative times, which can be compared over days and machines; absolute times cannot."""

    format: Annotated[Count, says("version of this file")] = 1
    made_from: Annotated[
        Mapping[str, Text],
        Field(alias="of", description="SHA-256 of run.json and of the samples that it was made from"),
    ] = field(default_factory=dict, compare=False, repr=False)
    name: Annotated[Text, says("name of the run")]
    started: Annotated[Text, says("start, ISO 8601, UTC")]
    status: Annotated[Text, says("as in run.json")]
    environment: Annotated[dict[str, Any], has_form(TypeAdapter(Environment)), says("the machine, as in run.json")]
    noise: Annotated[Text, says("what the controls show, in one line")]
    workloads: Annotated[Mapping[str, WorkloadResult], Field(alias="courses", description="results by workload")]
    subjects: Annotated[tuple[Key, ...], says("[workload, variant] of all that have a number")]
    rows: Annotated[tuple[RelativeTime, ...], says("relative time of each subject whose workload has a reference")]
    dropped: Annotated[tuple[tuple[Text, Text, Text], ...], says("[workload, variant, reason] without a number")]
    fired: Annotated[tuple[Text, ...], says("controls that reported a difference between identical code")]

    @model_validator(mode="after")
    def _is_whole(self) -> Standings:
        for workload, variant in self.subjects:
            result = self.workloads.get(workload)
            if result is None or (result.reference is not None and (workload, variant) not in self.times):
                raise ValueError(f"there is nothing here about {variant} on {workload}")
        return self

    @cached_property
    def times(self) -> dict[Key, RelativeTime]:
        """The rows by subject."""
        return {(row.workload, row.variant): row for row in self.rows}

    @cached_property
    def reasons(self) -> dict[Key, str]:
        """Why there is no number, by (workload, variant)."""
        return {(workload, variant): reason for workload, variant, reason in self.dropped}

    def of(self, workload: str) -> Standings:
        """The same of one workload alone."""
        return replace(
            self,
            workloads={name: result for name, result in self.workloads.items() if name == workload},
            subjects=tuple(key for key in self.subjects if key[0] == workload),
            rows=tuple(row for row in self.rows if row.workload == workload),
            dropped=tuple(entry for entry in self.dropped if entry[0] == workload),
        )


MANIFEST, STANDINGS = TypeAdapter(Manifest), TypeAdapter(Standings)
NOISE, VERDICTS = TypeAdapter(Noise), TypeAdapter(list[Verdict])
Claims = Annotated[list[dict[str, Any]], says("The claims as they stood then, in the form of `claims/*.toml`.")]
CLAIMS = TypeAdapter(Claims)  # harness/claims/model.py checks each claim
