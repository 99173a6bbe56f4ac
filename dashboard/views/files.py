"""What only pages read of run.json and claims.json, beyond the models of the store; these check what all readers need.

A value of a wrong kind counts as missing: it must not hide the rest of a run.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    WrapValidator,
)
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from llama_workbench.harness.store import schema
from llama_workbench.harness.store.forms import Alpha, Count, Number, Ratio, Size

T = TypeVar("T")


def _else_none(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    try:
        return check(value)
    except ValidationError:
        return None


Maybe = Annotated[T | None, WrapValidator(_else_none)]
Names = Annotated[list[StrictStr], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class Shape(BaseModel):
    """A part of a file: what is not named here is let through."""

    model_config = ConfigDict(frozen=True)


class Workload(Shape):
    """A workload; see datasets/workloads.toml for what the fields mean."""

    name: StrictStr

    kind: Maybe[StrictStr] = None
    geometry: Maybe[StrictStr] = None
    component: Maybe[StrictStr] = None
    tokens: Maybe[Size] = None
    new_tokens: Maybe[Size] = None
    context: Maybe[Size] = None
    batch: Maybe[Size] = None
    chunk: Maybe[Size] = None
    lengths: Maybe[StrictStr] = None
    dtype: Maybe[StrictStr] = None
    threads: Maybe[Size] = None


class Gate(schema.Gate):
    """The logits gate of a variant, with its largest error."""

    cases: Maybe[Count] = None
    max_error: Maybe[Number] = None
    tolerance: Maybe[Number] = None


class Trace(schema.Trace):
    """The operations of a variant, with its fused attention kernels."""

    attention_kernels: Maybe[list[StrictStr]] = None


class TraceDifference(schema.TraceDifference):
    """Where two op traces differ. `counts`: (operation, calls of the baseline, calls of the variant)."""

    counts: Maybe[list[tuple[StrictStr, Count, Count]]] = None


class Experiment(Shape):
    """One workload of a run."""

    workload: Workload
    baseline: Maybe[StrictStr] = None
    variants: list[StrictStr] = []
    clock: schema.Clock | None = None
    gates: dict[str, Gate] = {}
    traces: dict[str, Trace] = {}
    trace_differences: list[TraceDifference] = []


class Control(Shape):
    """A control as it was judged. `kind`: "aa" (entered twice) or "copy" (a copy of its source)."""

    workload: StrictStr = ""
    kind: StrictStr = ""
    variant: StrictStr = ""
    ratio: Maybe[Ratio] = None
    low: Maybe[Ratio] = None
    high: Maybe[Ratio] = None
    rounds: Maybe[Count] = None
    fired: Maybe[StrictBool] = None


class Noise(Shape):
    """The controls of a run, and what they showed in one line."""

    controls: list[Maybe[Control]] = []
    line: Maybe[StrictStr] = None


class Checkpoint(Shape):
    """The weights of a geometry."""

    hidden_size: Maybe[Size] = None


class Manifest(Shape):
    """run.json. `environment` is shown as it stands."""

    id: Maybe[StrictStr] = None
    started: Maybe[StrictStr] = None
    status: Maybe[StrictStr] = None
    command: Maybe[list[StrictStr]] = None
    seed: Maybe[StrictInt] = None
    alpha: Maybe[Alpha] = None
    noise: Maybe[Noise] = None
    environment: dict[str, Any] | None = None
    checkpoints: Maybe[dict[str, Checkpoint]] = None
    experiments: list[Experiment] = []


class Source(Shape):
    """Where a claim was made."""

    document: Maybe[StrictStr] = None
    section: Maybe[StrictStr] = None


class Hypothesis(Shape):
    """One part of a claim: what was to be measured."""

    part: Maybe[StrictStr] = None
    metric: Maybe[StrictStr] = None
    quantity: Maybe[StrictStr] = None
    of: Maybe[StrictStr] = None
    variant: Maybe[StrictStr] = None
    baseline: Maybe[Names] = None
    workloads: Maybe[list[StrictStr]] = None
    phases: Maybe[list[StrictStr]] = None


class Definition(Shape):
    """A claim as it stood when the run was made."""

    id: Maybe[StrictStr] = None
    title: Maybe[StrictStr] = None
    statement: Maybe[StrictStr] = None
    source: Maybe[list[Source]] = None
    decided_by: Maybe[StrictStr] = None
    assumes: Maybe[list[StrictStr]] = None
    hypothesis: Maybe[list[Hypothesis]] = None
