"""What stands in the JSON files of a run folder: one model a file. Those of the passes stand in pass_schema.py.

The models name what somebody reads, and no more: other keys are let through, and what older runs lack has a default.
`forms.fault` says in words where a file is not in this form; readers then work on plain dicts whose shapes they may
trust.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, StrictBool, StrictStr, TypeAdapter, model_validator
from pydantic_core import PydanticCustomError

from .forms import Alpha, Amount, Count, Log, Number, Ratio, Seed, Size, shown

# --- run.json ---------------------------------------------------------------------------------------------------------


class Shape(BaseModel):
    """A part of a file: what is not named here is let through."""

    model_config = ConfigDict(frozen=True)


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
    ratio: Ratio
    inside: Ratio
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


MANIFEST, JUDGED_MANIFEST, STANDINGS = TypeAdapter(Manifest), TypeAdapter(JudgedManifest), TypeAdapter(Standings)
VERDICTS = TypeAdapter(list[Verdict])
CLAIMS = TypeAdapter(list[dict[str, Any]])
"""claims.json is only a list of objects here: what a claim is, harness/claims/model.py checks."""
