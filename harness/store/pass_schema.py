"""What stands in the files that the passes of a run leave: as schema.py has it for the others."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, TypeAdapter

from .forms import MOST, Amount, Count, Nanoseconds, Number, Size, Some, once


class Shape(BaseModel):
    """A part of a file: what is not named here is let through."""

    model_config = ConfigDict(frozen=True)


class Finding(Shape):
    """An entry of findings.json."""

    metric: StrictStr
    quantity: StrictStr
    workload: StrictStr
    variant: StrictStr
    baseline: StrictStr
    value: Number | None
    count: Count
    detail: StrictStr = ""
    reason: StrictStr = ""
    seconds: Amount = 0.0


class Load(Shape):
    """A load until every byte was read."""

    round: Count
    open_ns: Nanoseconds
    touched_ns: Nanoseconds
    peak_bytes: Number | None = None


class FirstToken(Shape):
    """A load until the first token, and the same once more from memory."""

    round: Count
    open_ns: Nanoseconds
    build_ns: Nanoseconds
    first_ns: Nanoseconds
    build_again_ns: Nanoseconds
    first_again_ns: Nanoseconds


class Loading(Shape):
    """An entry of loading.json: a loader with a cold or a warm page cache."""

    checkpoint: StrictStr
    loader: StrictStr
    cache: StrictStr
    reason: StrictStr | None
    prompt_tokens: Size = 0
    file_bytes: Amount | None = None
    loads: Annotated[list[Load], once("round")]
    first_tokens: Annotated[list[FirstToken], once("round")]


class Memory(Shape):
    """An entry of memory.json."""

    workload: StrictStr
    variant: StrictStr
    peak_transient_bytes: Amount | None = None
    parameter_bytes: Amount | None = None
    cache_bytes: Amount | None = None
    reason: StrictStr | None = None


class Held(Shape):
    """Bytes by kind, as they are and after a reset."""

    held: dict[str, Count] = {}
    kept: dict[str, Count] = {}


class SweepStep(Held):
    """What was held after some lengths, and what the policies say."""

    lengths: list[Count]
    computed: Held | None = None


class Sweep(Shape):
    """An entry of memory_sweep.json."""

    workload: StrictStr
    variant: StrictStr
    reason: StrictStr | None = None
    steps: list[SweepStep] = []
    served: list[Size] | None = None
    peak_bytes: list[Count] | None = None
    loaded_bytes: Count | None = None
    weights_bytes: Count | None = None


class PhaseFacts(Shape):
    """An entry of phases.json; `lines`: file, line, phases of its own code and of what it calls."""

    workload: StrictStr
    variant: StrictStr
    rounds: Count = 0
    reason: StrictStr | None = None
    clock: StrictStr | None = None
    lines: dict[str, dict[str, tuple[list[StrictStr], list[StrictStr]]]] = {}


class Profile(Shape):
    """An entry of profiles.json."""

    workload: StrictStr
    variant: StrictStr
    path: StrictStr | None = None
    rate_hz: Amount | None = None
    samples: Count = 0
    native: StrictBool = False
    native_reason: StrictStr | None = None
    median_ns: Nanoseconds | None = None
    median_error_ns: Amount | None = None
    reason: StrictStr | None = None


class Roof(Shape):
    """A kernel that was timed: a call of it does `amount` operations, or reads so many bytes."""

    kernel: StrictStr
    amount: Some


class RoofEntry(Shape):
    """A variant that was wanted: on which clock it counts, or why it has no samples."""

    clock: Literal["cpu", "wall"] = "cpu"
    reason: StrictStr | None = None


class RoofSample(NamedTuple):
    """`calls` calls of a roof, one after another."""

    roof: Literal["matmul", "memory"]
    round: Count
    sub_round: Count
    calls: Count
    cpu_ns: Count
    wall_ns: Count


class CallSample(NamedTuple):
    """Calls of a variant worth `calls` calls of `tokens` tokens, one after another."""

    variant: StrictStr
    round: Count
    sub_round: Count
    tokens: Count
    calls: Count
    cpu_ns: Count
    wall_ns: Count


class Roofline(Shape):
    """One workload in roofline.json. `reason`: why there is nothing else.

    `work` has [operations, bytes] of each forward of a call, by the call's tokens. `weight_bytes`: what each forward
    reads beside keys and values; `cache_bytes`: of the last-level cache, None where unknown.
    """

    workload: StrictStr
    reason: StrictStr | None = None
    variants: dict[str, RoofEntry] = {}
    rounds: Count = 0
    roofs: dict[Literal["matmul", "memory"], Roof] = {}
    weight_bytes: Count = 0
    cache_bytes: Some | None = None
    work: dict[Annotated[int, Field(ge=0, le=MOST)], Annotated[list[tuple[Some, Some]], Field(min_length=1)]] = {}
    roof_samples: list[RoofSample] = []
    samples: list[CallSample] = []


FINDINGS = TypeAdapter(Annotated[list[Finding], once("metric", "quantity", "workload", "variant", "baseline")])
LOADING = TypeAdapter(Annotated[list[Loading], once("checkpoint", "loader", "cache")])
MEMORY = TypeAdapter(list[Memory])
MEMORY_SWEEP = TypeAdapter(list[Sweep])
PHASE_FACTS = TypeAdapter(list[PhaseFacts])
PROFILES = TypeAdapter(list[Profile])
ROOFLINE = TypeAdapter(Annotated[list[Roofline], once("workload")])
