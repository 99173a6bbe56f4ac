"""The JSON files that a run itself writes: one model a file. Each pass declares its own.

The models name what a reader uses: other keys are let through. What is computed with (`Noise`, `Standings`) is a
dataclass; an open end is infinite in memory, null in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import (
    Field,
    PlainSerializer,
    StrictBool,
    TypeAdapter,
    ValidationError,
    WrapValidator,
    model_validator,
)

from ..calls.environments import in_words
from ..machine.environment import device_kind
from ..spec.comparison import EnteredName, Metric
from ..spec.dispute import Dispute
from ..spec.regions import Condition
from ..spec.words import Cause
from ..stats.confidence import Interval
from ..stats.means import Mean
from .forms import (
    ABSENT,
    Alpha,
    Amount,
    Count,
    Log,
    LogHigh,
    LogLow,
    LogValue,
    Number,
    RatioHigh,
    RatioLow,
    RatioValue,
    Seed,
    Shape,
    Size,
    Some,
    Text,
    check,
    has_form,
    plain,
    says,
)
from .verdict_schema import Machine, Spending

# -- of run.json: checks of variants -----------------------------------------------------------------------------------


AnyNumber = Annotated[float, Field(strict=True)]
"""A number that may be infinite in memory; in a file that is null."""


class Excluded(Shape):
    """A variant that was excluded."""

    variant: Annotated[Text, says("its name")]
    reason: Annotated[Text, says("why the run went on without it")]
    cause: Annotated[Cause, says("the kind of that reason")] = Cause.EXCLUDED


class Gate(Shape):
    """What the logits gate says of a variant."""

    passed: Annotated[StrictBool, says("whether its outputs agree with the reference")]
    detail: Annotated[Text | None, says("the largest difference, in words")] = None
    cases: Annotated[Count | None, says("number of inputs that were compared")] = None
    max_error: Annotated[AnyNumber | None, says("largest difference; null: beyond all numbers")] = None
    tolerance: Annotated[Number | None, says("how large it may be")] = None
    unable: Annotated[StrictBool, says("whether an engine says that it cannot do this workload: no failure")] = False


class ChangedSetting(Shape):
    """What a function changed for its whole process."""

    what: Annotated[Text, says("the setting")]
    felt: Annotated[StrictBool, says("whether others feel it; else it is undone until its next turn")] = False


class SideFacts(Shape):
    """How a function ran, by what its gate and its rounds saw: what a reader must know beside the number. A field that
    is null was not seen."""

    first_call_ns: Annotated[Amount | None, says("time of its first call and its factory, nanoseconds")] = None
    wall_ns: Annotated[Amount | None, says("time of a later call in its gate, by the wall clock, ns")] = None
    waited_ns: Annotated[Amount | None, says("of that, while no thread of it computed, nanoseconds")] = None
    is_import: Annotated[StrictBool, says("whether it is an import, in a Python that had begun before")] = False
    is_apart: Annotated[StrictBool, says("whether only a part of each of its calls counts")] = False
    work: Annotated[dict[Text, Amount], says("what a call does by its input generator: items, bytes, flops")] = {}
    collections_per_call: Annotated[Amount | None, says("collections of garbage in a call, of all generations")] = None
    collection_share: Annotated[Amount | None, says("of a call's time, what they take")] = None
    fault_ns: Annotated[Amount | None, says("what a page fault takes there, nanoseconds")] = None
    copies_inputs: Annotated[StrictBool | None, says("whether its calls got copies: they change inputs")] = None
    inputs: Annotated[Count | None, says("inputs of a process that several calls were given each; null: none")] = None
    gains_again: Annotated[Log | None, says("log units that it gains more than the baseline from old inputs")] = None
    children_share: Annotated[Amount | None, says("CPU time of processes that it starts, by its wall time")] = None
    threads_share: Annotated[Amount | None, says("CPU time of its further threads, by its wall time")] = None
    sets_collector: Annotated[StrictBool | None, says("whether it sets the garbage collector")] = None
    files_left: Annotated[Amount | None, says("files that a call leaves open, on average")] = None
    changes: Annotated[list[ChangedSetting], says("what it changed for its whole process")] = []


class Trace(Shape):
    """The operations of a variant."""

    digest: Annotated[Text, says("SHA-256 of their list; equal lists are equal operations")]
    ops: Annotated[Count, says("number of operations in a forward")]
    attention_kernels: Annotated[list[Text] | None, says("its fused attention kernels")] = None
    counts: Annotated[dict[str, Count] | None, says("how often each of them runs")] = None


class TraceDifference(Shape):
    """How the operations of two variants differ."""

    baseline: Annotated[Text, says("one variant")]
    variant: Annotated[Text, says("the other variant")]
    same: Annotated[StrictBool, says("whether both do the same operations")]
    detail: Annotated[Text | None, says("where they differ, in words")] = None
    counts: Annotated[list[tuple[Text, Count, Count]], says("[operation, baseline's calls, variant's]")] = []


# What run.json keeps so that a run can go on later: when it was measured, by which code, and how its pairs.


class Sitting(Shape):
    """A stretch of time in which the run was measured."""

    started: Annotated[Text, says("its start, ISO 8601, UTC")]
    budget_seconds: Annotated[Amount, says("time that it was given, seconds")]
    others: Annotated[Amount | None, ABSENT, says("share of the machine that other programs used")] = None


class SourceRecord(Shape):
    """The code of a variant, or of a function."""

    digest: Annotated[Text, says("SHA-256 of its source and of what it imports by name, or of its commit")]
    file: Annotated[Text | None, says("name of the file, where the user brought one")] = None
    given: Annotated[Text | None, says("what is given again: NAME=FILE:FUNCTION@COMMIT")] = None
    commit: Annotated[Text | None, says("full name of the commit, where the code is of a revision")] = None


class CommandsRecord(Shape):
    """How the commands of a comparison were run."""

    ignore_failure: Annotated[Literal["any"] | list[int], says("exit codes that are no failure; any: all of them")] = []
    prepare: Annotated[Text, says("what ran before each call, untimed; empty: nothing")] = ""
    conclude: Annotated[Text, says("what ran after each call, untimed; empty: nothing")] = ""
    input: Annotated[Text, says("name of the file that was standard input, without folders; empty: nothing was")] = ""
    input_digest: Annotated[Text, says("SHA-256 of that file")] = ""


class CallSources(Shape):
    """The code that makes what functions are called with, and that compares their answers."""

    payload: Annotated[SourceRecord, says("makes the arguments of a call")]
    check: Annotated[SourceRecord | None, says("compares two answers; null: as the workbench does")] = None
    commands: Annotated[CommandsRecord | None, ABSENT, says("how commands were run, where that was said")] = None


class LostProcess(Shape):
    """A process that failed while it measured; the rounds that it had finished count."""

    process: Annotated[Count, says("its number")]
    variant: Annotated[Text | None, says("the side that ran; null: none")] = None
    reason: Annotated[Text, says("how it failed")]


class Sources(Shape):
    """The code that was measured, and the code that measured it."""

    variants: Annotated[dict[str, SourceRecord], says("by variant")]
    calls: Annotated[dict[str, CallSources], says("by workload, where functions are compared")] = {}
    harness: Annotated[Text, says("SHA-256 of the source of the measuring processes, and of what they are told")]


class SideEnvironment(Shape):
    """What a function ran in, where it had an environment, variables or interpreter options of its own."""

    python: Annotated[Text | None, says("version of Python, where --env named an environment; null: as the run")] = None
    packages: Annotated[dict[str, Text | None], says("version by package; null: not installed")] = {}
    differs: Annotated[list[Text], says("packages whose versions the environments do not share")] = []
    variables: Annotated[dict[str, Text], says("variables of its environment that were its own, without folders")] = {}
    options: Annotated[Text, says("options of its interpreter that were its own")] = ""


class Apart(Shape):
    """A pair that is measured in rounds of its own."""

    variant: Annotated[Text, says("one side")]
    baseline: Annotated[Text, says("the other side")]
    metric: Annotated[Metric, says("what of the calls is compared")]
    blocks: Annotated[StrictBool | None, says("whether its rounds are blocks; null before the first")] = None


FORMAT = 1  # of the run folder; a reader refuses any other

UNIT: Final = "process"
"""The `unit` of a run: each of its values is of a process of its own ("life" said earlier versions). In runs of
versions before them a process gave many values; they have no `unit`, and a reader refuses them."""


ITS_TEST = "its test"
"""What calls the function of a workload that is a test of a suite, as run.json has it."""


class Workload(Shape):
    """A workload, with the sizes that judging asks about."""

    name: Annotated[Text, says("its name")]
    kind: Annotated[Text | None, says('"prefill", "decode", "generate", "component", "call"')] = None
    calm: Annotated[StrictBool, says("whether freed memory was kept, and no garbage collected in samples")] = True
    payload: Annotated[Text | None, says("the function that makes the arguments of a call")] = None
    size: Annotated[Some | None, says("size of its inputs (--sizes)")] = None
    check: Annotated[Text | None, says("the function that compares two answers, where not by ==")] = None
    statistic: Annotated[Text | None, says('a percentile of its calls, such as "p99"; null: their median')] = None
    geometry: Annotated[Text | None, says("shape of its model; empty for a component")] = None
    tokens: Annotated[Size, says("length of a call")] = 0
    new_tokens: Annotated[Size | None, says("tokens that a call generates")] = None
    context: Annotated[Size, says("tokens in the cache before a call")] = 0
    component: Annotated[Text | None, says("which part of the model")] = None
    batch: Annotated[Size | None, says("number of sequences")] = None
    chunk: Annotated[Size | None, says("tokens of each step of a prefill")] = None
    lengths: Annotated[Text | None, says('"repeated", "trace", ...')] = None
    dtype: Annotated[Text | None, says("type of its numbers")] = None
    threads: Annotated[Size | None, says("threads that it computes on")] = None


class Clock(Shape):
    """The clock that counts."""

    default: Annotated[Text | None, says('"cpu" (of the thread), "wall" or "device"')] = None
    wall_variants: Annotated[list[Text], says("variants with threads of their own, timed by wall")] = []


class ExperimentRecord(Shape):
    """One workload of a run, its variants, and the results of their gates."""

    workload: Workload
    variants: Annotated[list[Text], says("what was built and timed, with the A/A checks")]
    baseline: Annotated[Text | None, says("what the variants are compared with")] = None
    clock: Clock = Clock()
    rounds: Annotated[Count, says("finished rounds")] = 0
    horizon: Annotated[Some | None, says("rounds that its budget should give, by costs alone")] = None
    early: Annotated[StrictBool, says("whether effects are looked at early, after four values")] = False
    own_processes: Annotated[StrictBool, says("whether each side had a process to itself")] = False
    blocks: Annotated[Count, says("of these, blocks: one pair in two processes that share a core")] = 0
    lost_processes: Annotated[list[LostProcess], says("processes that failed, and why")] = []
    apart: Annotated[list[Apart] | None, says("pairs in rounds of their own; null until it is decided")] = None
    seconds: Annotated[Amount | None, says("time that its rounds took, seconds")] = None
    sampled_seconds: Annotated[Amount | None, says("of that, inside timed samples")] = None
    compared_seconds: Annotated[Amount | None, says("of that, in samples of what is compared alone")] = None
    wall_seconds: Annotated[Amount | None, says("the same with starting processes and waiting")] = None
    first_seconds: Annotated[Amount | None, says("estimate of the seconds to its first intervals")] = None
    gates: Annotated[dict[str, Gate], says("result of the logits gate by variant")] = {}
    facts: Annotated[dict[str, SideFacts], says("how each function ran")] = {}
    traces: Annotated[dict[str, Trace], says("operations by variant")] = {}
    trace_differences: Annotated[list[TraceDifference], says("the pairs whose operations were compared")] = []
    excluded: Annotated[list[Excluded], says("variants that were excluded on this workload")] = []


class Checkpoint(Shape):
    """The weights of a geometry."""

    hidden_size: Annotated[Size | None, says("width of the model")] = None
    layers: Annotated[Size | None, says("its layers")] = None
    digest: Annotated[Text | None, says("SHA-256 of the weights")] = None
    synthetic: Annotated[StrictBool | None, says("whether they were drawn from a seed")] = None
    facts: Annotated[Text | None, says("of the user's own: what its files say, in words")] = None


class Device(Shape):
    """The device that the models computed on."""

    kind: Annotated[Text | None, says('"cpu" or "cuda"')] = None


class Environment(Shape):
    """The machine: what its one line shows, and what makes two machines different."""

    cpu_model: Annotated[Text | None, says("name of the processor")] = None
    cpu_flags: Annotated[list[Text] | None, says("its instruction sets")] = None
    cores: Annotated[Count | None, says("cores that the run could use")] = None
    cgroup_quota_cores: Annotated[Number | None, says("cores that its container may use; null: all")] = None
    governor: Annotated[Text | None, says("how the kernel chooses the clock rate")] = None
    memory_bytes: Annotated[Count | None, says("main memory")] = None
    transparent_huge_pages: Annotated[Text | None, says("the kernel's setting for 2 MiB pages")] = None
    system: Annotated[Text | None, says("name of the operating system")] = None
    kernel: Annotated[Text | None, says("version of its kernel")] = None
    machine: Annotated[Text | None, says("kind of processor, such as x86_64")] = None
    libc: Annotated[Text | None, says("version of the C library")] = None
    python: Annotated[Text | None, says("version of Python")] = None
    python_implementation: Annotated[Text | None, says("which Python it is, such as CPython")] = None
    torch: Annotated[Text | None, says("version of torch")] = None
    packages: Annotated[dict[str, Text | None] | None, says("version by package")] = None
    threads: Annotated[Count | None, says("the fewest threads that a workload computed on")] = None
    malloc: Annotated[dict[str, Any] | None, says("environment variables of the allocator")] = None
    device: Device | None = None
    load_average: Annotated[list[Number] | None, says("processes that wanted to run, over 1, 5 and 15 minutes")] = None
    commit: Annotated[dict[str, Any] | None, says("commit of the code, and whether files differed from it")] = None


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
    """The controls of a run, and what they show in one line."""

    controls: Annotated[tuple[Control, ...], says("every A/A check")] = ()
    line: Annotated[Text, says("the summary")] = ""
    typical: Annotated[Amount, ABSENT, says("log units by which A/A checks differ typically")] = 0.0


def _dispute_as_read(stored: Any, read: Callable[[Any], Dispute]) -> Dispute:
    """Of a run whose questions this version cannot read, the one that asks nothing."""
    try:
        return read(stored)
    except ValidationError:
        if not isinstance(stored, dict):
            raise
        return Dispute()


StoredDispute = Annotated[
    Dispute,
    WrapValidator(_dispute_as_read, json_schema_input_type=dict[str, Any]),
    PlainSerializer(Dispute.stored, return_type=dict[str, Any]),
]


class Manifest(Shape):
    """The run. Parts may be missing, but what is there must be right."""

    sealed: Annotated[StrictBool | None, says("true once the run has ended and has SHA256SUMS")] = None
    format: Annotated[Count, says("version of the run folder")] = FORMAT
    id: Annotated[Text | None, says("name of the run")] = None
    started: Annotated[Text | None, says("start, ISO 8601, UTC")] = None
    finished: Annotated[Text | None, says("end; null until then")] = None
    status: Annotated[Text | None, says('"running", "complete", "interrupted" or "failed"')] = None
    mode: Annotated[Text | None, says('"claims", "compare", "gates"; "fleet": of several machines')] = None
    command: Annotated[list[Text], says("command line that started the run")] = []
    seed: Annotated[Seed | None, says("seed of the random orders and weights")] = None
    options: Annotated[dict[str, Any], says("options that it keeps when it goes on")] = {}
    budget_seconds: Annotated[Amount | None, says("time for rounds, in all, seconds")] = None
    sittings: Annotated[list[Sitting], says("when it was measured; `--continue` adds one")] = []
    sources: Annotated[Sources | None, says("the code, so that a run that goes on is still one run")] = None
    passes: Annotated[list[Text], says("metrics whose pass was made")] = []
    alpha: Annotated[Alpha, says("chance that a verdict is wrong")] = 0.01
    unit: Annotated[Literal["process", "life"], says('"process": each of its values is of a process of its own')] = UNIT
    ad_hoc: Annotated[list[tuple[Text, Text]], says("pairs [baseline, variant] that --compare asked for")] = []
    fail_if: Annotated[list[Condition], says('when it fails, such as "slower:5"')] = []
    dispute: Annotated[StoredDispute, says("what is asked about the claims, as `dispute.toml` has it")] = Dispute()
    environment: Environment | None = None
    environments: Annotated[dict[str, SideEnvironment], says("by side that has one of its own")] = {}
    spending: Annotated[Spending | None, says('of a fleet: "replicate" or "split"')] = None
    machines: Annotated[list[Machine], says("of a fleet: its machines, each with a run of its own")] = []
    request: Annotated[dict[str, Any] | None, says("of a fleet: what was asked for, so that it can go on")] = None
    checkpoints: Annotated[dict[str, Checkpoint] | None, says("weights by model shape")] = None
    experiments: Annotated[list[ExperimentRecord], says("one entry for each workload")] = []
    excluded: Annotated[list[Excluded], says("variants that were excluded on every workload")] = []
    noise: Annotated[Noise | None, says("its A/A checks; only once it was judged")] = None

    @property
    def device_kind(self) -> str:
        """What its models computed on, "cpu" or "cuda". Runs from before there was a choice were on the CPU."""
        return device_kind(self.machine_facts)

    @property
    def machine_facts(self) -> dict[str, Any]:
        """What is known of its machine, as `harness.machine.environment` has it, and what its sides had of their own;
        empty of a fleet."""
        own = {
            side: in_words(facts.variables, facts.options)
            for side, facts in self.environments.items()
            if facts.variables or facts.options
        }
        return {} if self.environment is None else plain(self.environment) | ({"sides": own} if own else {})

    def with_rounds(self, counted: Mapping[str, int]) -> Manifest:
        """The same with so many rounds of each workload: of a killed run it has those of some time before."""
        entries = [each.model_copy(update={"rounds": counted.get(each.workload.name, 0)}) for each in self.experiments]
        return self.model_copy(update={"experiments": entries})


Key = tuple[str, str]  # (workload, variant)


@dataclass(frozen=True)
class WorkloadResult:
    """One workload of a run: what was done, on which weights, and what its variants are compared with."""

    workload: Annotated[dict[str, Any], says("the workload, as in run.json")]
    checkpoint: Annotated[Text | None, says("SHA-256 of the weights; null: none")]
    reference: Annotated[Text | None, says("what its variants are compared with")]
    bias: Annotated[Amount, says("by how many log units a ratio may be off, by A/A checks that failed")]


@dataclass(frozen=True)
class OverProcesses(Mean):
    """The trimmed mean of a log ratio over processes, by which two runs are compared."""

    centre: Annotated[Log, says("the mean")]
    error: Annotated[Amount, Field(gt=0), says("its standard error")]
    freedom: Annotated[Amount, Field(ge=0.5), says("degrees of freedom of the error")]


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
    over_processes: Annotated[OverProcesses | None, says("its mean over processes; null: fewer than two")] = None

    @property
    def interval(self) -> Interval:
        """Of the log ratio."""
        return Interval(self.log_ratio, self.low, self.high, self.rounds, self.unstable)


@dataclass(frozen=True, kw_only=True)
class Standings:
    """A run as relative times, which can be compared over days and machines; absolute times cannot."""

    format: Annotated[Count, says("version of this file")] = 2
    made_from: Annotated[Mapping[str, Text], says("SHA-256 of run.json and of the samples")] = field(
        default_factory=dict, compare=False, repr=False
    )
    name: Annotated[Text, says("name of the run")]
    started: Annotated[Text, says("start, ISO 8601, UTC")]
    status: Annotated[Text, says("as in run.json")]
    environment: Annotated[dict[str, Any], has_form(TypeAdapter(Environment)), says("the machine, as in run.json")]
    noise: Annotated[Text, says("what the A/A checks show, in one line")]
    workloads: Annotated[Mapping[str, WorkloadResult], says("results by workload")]
    subjects: Annotated[tuple[Key, ...], says("[workload, variant] of all that have a number")]
    rows: Annotated[tuple[RelativeTime, ...], says("relative time of each subject whose workload has a reference")]
    dropped: Annotated[tuple[tuple[Text, Text, Text], ...], says("[workload, variant, reason] without a number")]
    fired: Annotated[tuple[Text, ...], says("A/A checks that reported a difference")]
    measured_by: Annotated[Text, says("SHA-256 of the code that measured, as in run.json; empty: it is not known")] = ""
    others: Annotated[Amount | None, says("share of the machine that other programs used")] = None

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


def manifest_of(content: Mapping[str, Any]) -> Manifest:
    """run.json as a value. Raises Fault where something in it is not as a run writes it."""
    manifest: Manifest = check(MANIFEST, content)
    return manifest


MANIFEST, STANDINGS = TypeAdapter(Manifest), TypeAdapter(Standings)
Claims = Annotated[list[dict[str, Any]], says("The claims as they stood then, in the form of `claims/*.toml`.")]
CLAIMS = TypeAdapter(Claims)  # harness/claims/model.py checks each claim
