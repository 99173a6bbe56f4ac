"""The JSON files that the passes of a run write: one model an entry, in the way of schema.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StrictBool, TypeAdapter

from .forms import MOST, Amount, Count, Nanoseconds, Number, Shape, Size, Some, Text, Value, once, says

Subject = tuple[str, str, str, str, str]
"""(metric, quantity, workload, variant, baseline), with "" for what does not apply."""


@dataclass(frozen=True)
class ExactResult:
    """One exact result of a pass: bytes, lines, the share of cases that pass a check."""

    metric: Annotated[Text, says("memory, count or check")]
    quantity: Annotated[Text, says("what was counted or checked")]
    workload: Annotated[Text, says("on which workload; may be empty")]
    variant: Annotated[Text, says("of which variant; may be empty")]
    baseline: Annotated[Text, says("over which other variant; may be empty")]
    value: Annotated[Value, says("the result; null: none")]
    count: Annotated[Count, says("number of cases behind it")]
    detail: Annotated[Text, says("the cases, in words")] = ""
    reason: Annotated[Text, says("why there is no value")] = ""
    seconds: Annotated[Amount, says("time that it took, seconds")] = 0.0

    @property
    def subject(self) -> Subject:
        """What the value is of."""
        return self.metric, self.quantity, self.workload, self.variant, self.baseline


class Load(Shape):
    """A load of a checkpoint until every byte was read."""

    round: Annotated[Count, says("which round, from 0")]
    open_ns: Annotated[Nanoseconds, says("until the file was open, nanoseconds")]
    touched_ns: Annotated[Nanoseconds, says("until every byte was read, nanoseconds")]
    peak_bytes: Annotated[Number | None, says("most memory of the process")] = None


class FirstToken(Shape):
    """A load until the first token, and the same once more from memory."""

    round: Annotated[Count, says("which round, from 0")]
    open_ns: Annotated[Nanoseconds, says("until the file was open, nanoseconds")]
    build_ns: Annotated[Nanoseconds, says("to build the model, nanoseconds")]
    first_ns: Annotated[Nanoseconds, says("to the first token, nanoseconds")]
    build_again_ns: Annotated[Nanoseconds, says("to build a second model, nanoseconds")]
    first_again_ns: Annotated[Nanoseconds, says("to its first token, nanoseconds")]


class Loading(Shape):
    """A loader with a cold or a warm page cache."""

    checkpoint: Annotated[Text, says("which weights")]
    loader: Annotated[Text, says("what reads the file")]
    cache: Annotated[Text, says("cold or warm")]
    reason: Annotated[Text | None, says("why there are no loads")]
    prompt_tokens: Annotated[Size, says("length of the prompt before the first token")] = 0
    file_bytes: Annotated[Amount | None, says("size of the file")] = None
    loads: Annotated[list[Load], once("round"), says("one entry a round")]
    first_tokens: Annotated[list[FirstToken], once("round"), says("one entry a round")]


class OfVariant(Shape):
    """What a pass found of a variant."""

    workload: Annotated[Text, says("on which workload")]
    variant: Annotated[Text, says("of which variant")]


class Memory(OfVariant):
    """The memory of a variant on a workload."""

    peak_transient_bytes: Annotated[Amount | None, says("most bytes of temporary tensors in a call")] = None
    parameter_bytes: Annotated[Amount | None, says("bytes of weights")] = None
    cache_bytes: Annotated[Amount | None, says("bytes of caches")] = None
    reason: Annotated[Text | None, says("why there are no values")] = None


class Held(Shape):
    """Bytes of live tensors by kind."""

    held: Annotated[dict[str, Count], says("after the calls")] = {}
    kept: Annotated[dict[str, Count], says("after a reset")] = {}


class SweepStep(Held):
    """The live tensors after calls of some lengths."""

    lengths: Annotated[list[Count], says("the lengths so far")]
    computed: Annotated[Held | None, says("the memory that the variant's policies expect")] = None


class Sweep(OfVariant):
    """Live tensors of a variant over lengths."""

    reason: Annotated[Text | None, says("why there are no steps")] = None
    steps: Annotated[list[SweepStep], says("before the first call, and after each")] = []
    served: Annotated[list[Size] | None, says("lengths that were called")] = None
    peak_bytes: Annotated[list[Count] | None, says("most memory of the process, by length")] = None
    loaded_bytes: Annotated[Count | None, says("memory of the process with the model loaded")] = None
    weights_bytes: Annotated[Count | None, says("bytes of weights")] = None


class PhaseFacts(OfVariant):
    """How the phases of a variant were timed; the times are in phases.parquet."""

    rounds: Annotated[Count, says("number of rounds")] = 0
    reason: Annotated[Text | None, says("why there are no phases")] = None
    clock: Annotated[Text | None, says("the clock, in words")] = None
    lines: Annotated[
        dict[str, dict[str, tuple[list[Text], list[Text]]]],
        says("file → line → [phases of its own code, phases of what it calls]"),
    ] = {}


class Profile(OfVariant):
    """A sampling profile of a variant."""

    path: Annotated[Text | None, says("its stacks, a file in the run folder")] = None
    rate_hz: Annotated[Amount | None, says("samples a second")] = None
    samples: Annotated[Count, says("number of samples")] = 0
    native: Annotated[StrictBool, says("whether it has frames of native code")] = False
    native_reason: Annotated[Text | None, says("why it has none")] = None
    median_ns: Annotated[Nanoseconds | None, says("time of a call meanwhile, nanoseconds")] = None
    median_error_ns: Annotated[Amount | None, says("standard error of that, nanoseconds")] = None
    reason: Annotated[Text | None, says("why there is no profile")] = None


class Roof(Shape):
    """A peak kernel that was timed."""

    kernel: Annotated[Text, says("which kernel")]
    amount: Annotated[Some, says("operations, or bytes that it reads, of a call")]


class RoofEntry(Shape):
    """A variant of the roofline pass."""

    clock: Annotated[Literal["cpu", "wall"], says("which of its times counts")] = "cpu"
    reason: Annotated[Text | None, says("why it has no samples")] = None


class RoofSample(NamedTuple):
    """`calls` calls of a peak kernel, one after another: a list of these values."""

    roof: Literal["matmul", "memory"]
    round: Count
    sub_round: Count
    calls: Count
    cpu_ns: Count
    wall_ns: Count


class CallSample(NamedTuple):
    """Calls of a variant worth `calls` calls of `tokens` tokens, one after another: a list of these values."""

    variant: Text
    round: Count
    sub_round: Count
    tokens: Count
    calls: Count
    cpu_ns: Count
    wall_ns: Count


_Tokens = Annotated[int, Field(ge=0, le=MOST)]


class Roofline(Shape):
    """Variants beside peak kernels on one workload."""

    workload: Annotated[Text, says("on which workload")]
    reason: Annotated[Text | None, says("why there is nothing else")] = None
    variants: Annotated[dict[str, RoofEntry], says("the variants that were asked for")] = {}
    rounds: Annotated[Count, says("number of rounds")] = 0
    roofs: Annotated[dict[Literal["matmul", "memory"], Roof], says("the peak kernels")] = {}
    weight_bytes: Annotated[Count, says("what each forward reads beside keys and values")] = 0
    cache_bytes: Annotated[Some | None, says("size of the last-level cache; null: unknown")] = None
    work: Annotated[
        dict[_Tokens, Annotated[list[tuple[Some, Some]], Field(min_length=1)]],
        says("tokens of a call → [operations, bytes] of each of its forwards"),
    ] = {}
    roof_samples: Annotated[list[RoofSample], says("times of the peak kernels")] = []
    samples: Annotated[list[CallSample], says("times of the variants")] = []


class Instructions(OfVariant):
    """How many instructions a call of a variant executes, counted by callgrind: work, and no time."""

    instructions: Annotated[Amount | None, says("instructions of a call; null: no count")] = None
    calls: Annotated[Count, says("number of calls that were counted")] = 0
    inputs: Annotated[Count, says("different inputs that a function was called with; 0 of a model")] = 0
    again: Annotated[Amount | None, says("the same, counted a second time; null: counted once")] = None
    by: Annotated[dict[str, Amount], says("whose code they lie in → instructions of a call")] = {}
    reason: Annotated[Text | None, says("why there is no count")] = None
    capability: Annotated[Text | None, says("instruction set that torch's kernels chose under valgrind")] = None
    versions: Annotated[
        dict[str, Text], says("version of torch, Python, valgrind and (of functions) numpy by name")
    ] = {}


FINDINGS = TypeAdapter(Annotated[list[ExactResult], once("metric", "quantity", "workload", "variant", "baseline")])
INSTRUCTIONS = TypeAdapter(Annotated[list[Instructions], once("workload", "variant")])
LOADING = TypeAdapter(Annotated[list[Loading], once("checkpoint", "loader", "cache")])
MEMORY = TypeAdapter(list[Memory])
MEMORY_SWEEP = TypeAdapter(list[Sweep])
PHASE_FACTS = TypeAdapter(list[PhaseFacts])
PROFILES = TypeAdapter(list[Profile])
ROOFLINE = TypeAdapter(Annotated[list[Roofline], once("workload")])
