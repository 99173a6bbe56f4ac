"""What stands in the JSON files of a run folder: one model a file, and one line for whatever is something else.

The models name what somebody reads, and no more: other keys are let through, and what older runs lack has a default.
`fault` says in words where a file is not in this form; readers then work on plain dicts whose shapes they may trust.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

MOST = 2**62
"""No count, no number of bytes and no time in nanoseconds is larger; sums of a few of them still fit in 64 bits."""

Count = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Some = Annotated[int, Field(strict=True, gt=0, le=MOST)]
Seed = Annotated[int, Field(strict=True, ge=0)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e300, le=1e300)]
Log = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-300, le=300)]
"""The logarithm of a ratio; the quotient of two of them is still a float."""
Amount = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1e300)]
Nanoseconds = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=1e-9, le=MOST)]
Alpha = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=1e-12, lt=1)]
Size = Annotated[int, Field(strict=True, ge=0, le=2**40)]
"""Tokens, widths and the like: what is multiplied and raised to powers."""


class Shape(BaseModel):
    """A part of a file: what is not named here is let through."""

    model_config = ConfigDict(frozen=True)


def _once(*names: str) -> AfterValidator:
    """No two records of a list may have the same values of these."""

    def check(records: list[Any]) -> list[Any]:
        seen = set()
        for index, record in enumerate(records):
            key = tuple(getattr(record, name) for name in names)
            if key in seen:
                raise PydanticCustomError("twice", "entry {index} has the {names} of an earlier one", {
                    "index": index, "names": ", ".join(names)})  # fmt: skip
            seen.add(key)
        return records

    return AfterValidator(check)


# --- run.json ---------------------------------------------------------------------------------------------------------


class LeftOut(Shape):
    """A variant that the run went on without."""

    variant: StrictStr
    reason: StrictStr


class Gate(Shape):
    """What the logits gate found for a variant."""

    passed: StrictBool
    detail: StrictStr | None = None


class Trace(Shape):
    """The operations of a variant."""

    digest: StrictStr
    ops: Count


class TraceDifference(Shape):
    """Where two variants' operations differ."""

    baseline: StrictStr
    variant: StrictStr
    same: StrictBool
    detail: StrictStr | None = None


class Confirmed(Shape):
    """A ratio that was measured again from outside the processes, and what rounds gave."""

    variant: StrictStr
    baseline: StrictStr
    ratio: Annotated[Number, Field(gt=0)]
    inside: Annotated[Number, Field(gt=0)]
    calls: Count


class Named(Shape):
    """A workload, as far as every reader needs it."""

    name: StrictStr


class Gated(Shape):
    """A workload, its variants, and what the gates found."""

    workload: Named
    variants: list[StrictStr]
    gates: dict[str, Gate] = {}
    traces: dict[str, Trace] = {}
    trace_differences: list[TraceDifference] = []
    confirmations: list[Confirmed] = []
    excluded: list[LeftOut] = []
    seconds: Amount | None = None


class Experiment(Gated):
    """One workload of a run."""

    clock: dict[str, Any] = {}


class Machine(Shape):
    """What stands in the one line about a machine, and what makes two of them different."""

    cpu_model: StrictStr | None = None
    cpu_flags: list[StrictStr] | None = None
    cores: Number | None = None
    threads: Number | None = None
    memory_bytes: Number | None = None
    transparent_huge_pages: StrictStr | None = None
    torch: StrictStr | None = None
    libc: StrictStr | None = None
    packages: dict[str, StrictStr | None] | None = None
    malloc: dict[str, Any] | None = None
    commit: dict[str, Any] | None = None


class Environment(Machine):
    """The machine of a run."""

    device: dict[str, Any] | None = None


class Whole(Shape):
    """Of run.json what is asked alike by all."""

    noise: dict[str, Any] | None = None
    ad_hoc: list[tuple[StrictStr, StrictStr]] = []
    excluded: list[LeftOut] = []


class Manifest(Whole):
    """run.json, as far as a run without it cannot be shown at all."""

    format: Count
    environment: Environment | None = None
    checkpoints: dict[str, dict[str, Any]] | None = None
    experiments: list[Experiment] = []


class Workload(Named):
    """What judging asks about a workload."""

    kind: StrictStr | None = None
    geometry: StrictStr | None = None
    tokens: Size = 0
    new_tokens: Size | None = None
    context: Size = 0


class Clock(Shape):
    """Which variants are timed by wall."""

    default: StrictStr | None = None
    wall_variants: list[StrictStr] = []


class JudgedExperiment(Gated):
    """What judging asks about a workload of a run."""

    workload: Workload
    baseline: StrictStr | None = None
    clock: Clock = Clock()
    rounds: Count = 0


class Checkpoint(Shape):
    """The weights of a geometry."""

    hidden_size: Size | None = None
    digest: StrictStr | None = None


class Device(Shape):
    """What the models computed on."""

    kind: StrictStr | None = None


class JudgedEnvironment(Machine):
    """What judging asks about the machine."""

    device: Device | None = None


class JudgedManifest(Whole):
    """run.json, as far as a verdict depends on it; parts may be missing, but what is there must be right."""

    id: StrictStr | None = None
    started: StrictStr | None = None
    status: StrictStr | None = None
    alpha: Alpha = 0.01
    seed: Seed | None = None
    environment: JudgedEnvironment | None = None
    checkpoints: dict[str, Checkpoint] | None = None
    experiments: list[JudgedExperiment] = []


# --- what was judged --------------------------------------------------------------------------------------------------


class Effect(Shape):
    """A row of evidence; with a `unit` it has a `value` and no `ratio`."""

    workload: StrictStr
    variant: StrictStr
    baseline: StrictStr
    verdict: StrictStr
    metric: StrictStr = ""
    unit: StrictStr = ""
    ratio: Number | None = None
    value: Number | None = None
    low: Number | None = None
    high: Number | None = None
    rounds: Count
    seconds: Amount
    warnings: list[StrictStr]


class Ends(Shape):
    """What is claimed."""

    low: Number | None = None
    high: Number | None = None


class Verdict(Shape):
    """An entry of verdicts.json."""

    claim: StrictStr
    verdict: StrictStr
    reason: StrictStr
    who: list[StrictStr]
    effects: list[Effect]
    part: StrictStr | None = None
    title: StrictStr = ""
    statement: StrictStr = ""
    claimed: StrictStr = ""
    alpha: Alpha | None = None
    region: Ends | None = None


class Course(Shape):
    """A workload in standings.json."""

    workload: dict[str, Any]
    checkpoint: StrictStr | None
    against: StrictStr | None
    bias: Amount


class Row(Shape):
    """Where a variant stands."""

    workload: StrictStr
    variant: StrictStr
    clock: StrictStr
    log_ratio: Log | None
    low: Log | None
    high: Log | None
    rounds: Count
    unstable: StrictBool
    faults: Number


class Standings(Shape):
    """standings.json."""

    format: Count
    of: dict[str, StrictStr]
    name: StrictStr
    started: StrictStr
    status: StrictStr
    environment: Environment
    noise: StrictStr
    courses: dict[str, Course]
    subjects: list[tuple[StrictStr, StrictStr]]
    rows: list[Row]
    dropped: list[tuple[StrictStr, StrictStr, StrictStr]]
    fired: list[StrictStr]

    @model_validator(mode="after")
    def _is_whole(self) -> Standings:
        rows = {(row.workload, row.variant) for row in self.rows}
        for workload, variant in self.subjects:
            course = self.courses.get(workload)
            if course is None or (course.against is not None and (workload, variant) not in rows):
                said = {"subject": shown(f"{variant} on {workload}")}
                raise PydanticCustomError("lost", "nothing stands here about {subject}", said)
        return self


# --- what passes found ------------------------------------------------------------------------------------------------


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
    loads: Annotated[list[Load], _once("round")]
    first_tokens: Annotated[list[FirstToken], _once("round")]


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


# --- in words ---------------------------------------------------------------------------------------------------------

MANIFEST, JUDGED_MANIFEST, STANDINGS = TypeAdapter(Manifest), TypeAdapter(JudgedManifest), TypeAdapter(Standings)
VERDICTS = TypeAdapter(list[Verdict])
FINDINGS = TypeAdapter(Annotated[list[Finding], _once("metric", "quantity", "workload", "variant", "baseline")])
LOADING = TypeAdapter(Annotated[list[Loading], _once("checkpoint", "loader", "cache")])
MEMORY = TypeAdapter(list[Memory])
MEMORY_SWEEP = TypeAdapter(list[Sweep])
PHASE_FACTS = TypeAdapter(list[PhaseFacts])
PROFILES = TypeAdapter(list[Profile])
ROOFLINE = TypeAdapter(Annotated[list[Roofline], _once("workload")])
CLAIMS = TypeAdapter(list[dict[str, Any]])
"""claims.json is only a list of objects here: what a claim is, harness/claims.py checks."""

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "int_parsing": "a whole number",
}


def fault(form: TypeAdapter[Any], value: Any) -> str | None:
    """What is wrong with `value` as this form, in one line: place, what stands there, what was expected; else None."""
    try:
        form.validate_python(value)
    except ValidationError as error:
        return _told(error.errors(include_url=False)[0])
    return None


class Fault(ValueError):
    """A value is not in the form that is asked for; the text says where."""


def check(form: TypeAdapter[Any], value: Any) -> None:
    """Raise Fault where `fault` has something to say."""
    if said := fault(form, value):
        raise Fault(said)


def _told(found: Mapping[str, Any]) -> str:
    kind, context = str(found["type"]), found.get("ctx") or {}
    location = [step for step in found["loc"] if step != "[key]"]
    if kind == "missing":
        return f"{place(location[:-1])} has no {_step(location[-1])}"
    if kind in ("twice", "lost"):
        return f"{place(location)}: {found['msg']}" if location else str(found["msg"])
    expected = _EXPECTED.get(kind) or _bound(kind, context) or str(found["msg"]).lower()
    return f"{place(location)} is {shown(found['input'])}, expected {expected}"


def _bound(kind: str, context: Mapping[str, Any]) -> str | None:
    match kind:
        case "greater_than":
            return f"more than {context['gt']:g}"
        case "greater_than_equal":
            return f"{context['ge']:g} or more"
        case "less_than":
            return f"less than {context['lt']:g}"
        case "less_than_equal":
            return f"at most {context['le']:g}"
        case "literal_error":
            return str(context["expected"])
        case "too_short":
            return f"{context['min_length']} or more entries"
    return None


def place(steps: Sequence[int | str]) -> str:
    """Where in a file: `entry 3, "effects", entry 0, "low"`."""
    return ", ".join(map(_step, steps)) or "it"


def _step(step: int | str) -> str:
    return f"entry {step}" if isinstance(step, int) else shown(step)


def shown(value: Any) -> str:
    """A value as JSON, on one line and not long."""
    if isinstance(value, (dict, list, tuple)):
        kind = "object" if isinstance(value, dict) else "list"
        return f"{'a' if kind == 'list' else 'an'} {kind} of {len(value)}" if value else f"an empty {kind}"
    text = json.dumps(value, default=repr) if not isinstance(value, int) or abs(value) < 10**60 else "a huge number"
    return text if len(text) <= 60 else f"{text[:57]}..."


class OutOfRange(ValueError):
    """A number that no arithmetic can be done with."""


def parse(text: str) -> Any:
    """JSON whose numbers are all finite and small enough for a float.

    Raises OutOfRange that says where, json.JSONDecodeError, RecursionError.
    """
    try:
        return json.loads(text, parse_float=_float, parse_int=_int, parse_constant=_float)
    except OutOfRange as error:
        raise OutOfRange(_where(text, str(error))) from None


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise OutOfRange(text)
    return value


def _int(text: str) -> int:
    if len(text) > 300:
        raise OutOfRange(text)
    return int(text)


def _where(text: str, number: str) -> str:
    line = text.count("\n", 0, max(text.find(number), 0)) + 1
    said = number if len(number) <= 30 else f"{number[:27]}..."
    return f"line {line}: {said} stands there, expected a finite number of at most 300 digits"
