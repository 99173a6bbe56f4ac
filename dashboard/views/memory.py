"""Memory of a run: time against memory, and what caching policies hold."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llama_workbench.harness.evidence.evidence import Evidence
from llama_workbench.harness.store import pass_schema
from llama_workbench.harness.store.files import MEMORY_SWEEP
from llama_workbench.harness.store.folder import RunFolder

from .. import words
from . import data
from .samples import Timing, timing

AMOUNTS = {
    "peak_transient_bytes": "Peak transient, above the weights",
    "parameter_bytes": "Parameters",
    "cache_bytes": "Caches",
}
"""What is shown of a row of memory.json, each on an axis of its own: they differ by orders of magnitude."""


def differences(rows: Sequence[pass_schema.Memory], field: str, baseline: str) -> list[str]:
    """Each other side against the baseline, by one amount: "fast: 1.2 MiB less than before (-30 %)"."""
    amounts: dict[str, float | None] = {row.variant: getattr(row, field) for row in rows}
    base = amounts.pop(baseline, None)
    lines = []
    for name, amount in amounts.items():
        if base is None or amount is None:
            continue
        change = f"{words.size(abs(amount - base))} {'more' if amount > base else 'less'} than {baseline}"
        share = f" ({100 * (amount - base) / base:+.3g} %)" if base else ""
        lines.append(f"{name}: the same as {baseline}" if amount == base else f"{name}: {change}{share}")
    return lines


# -- time against memory -------------------------------------------------------------------------------------------

FRONT = "on the front"


@dataclass(frozen=True)
class Spot:
    """A variant in time and memory. `rank`: FRONT, "beaten by X", or "behind X, not settled"."""

    variant: str
    amount: float
    timing: Timing
    rank: str = ""


def tradeoff(run: data.Run, evidence: Evidence | None, workload: str, field: str) -> tuple[list[Spot], list[str]]:
    """Every variant with its bytes (a key of AMOUNTS) and speed-up, fastest first; and why the others have no place."""
    baseline = data.experiment(run, workload).baseline or ""
    spots, missing = [], []
    for (where, variant), row in run.memory.items():
        if where != workload:
            continue
        amount, time = getattr(row, field), timing(run, evidence, workload, variant, baseline)
        if amount is None:
            missing.append(f"{variant}: {row.reason or 'its memory was not measured'}")
        elif time.ratio is None:
            missing.append(f"{variant}: {time.warning}")
        else:
            spots.append(Spot(variant, amount, time))
    spots.sort(key=lambda spot: -(spot.timing.ratio or 0))
    return [replace(spot, rank=_rank(spot, spots)) for spot in spots], missing


def _rank(spot: Spot, spots: Sequence[Spot]) -> str:
    """On the front where no other variant is faster without needing more memory; else which one is."""

    def costs(one: Spot) -> tuple[float, float]:  # the less of each the better
        return one.amount, -(one.timing.ratio or 0.0)

    mine, high = costs(spot), spot.timing.high
    rivals = [one for one in spots if costs(one) != mine and all(map(operator.le, costs(one), mine))]
    if not rivals:
        return FRONT
    rivals.sort(key=lambda one: costs(one)[1])
    for rival in rivals:
        if rival.timing.low is not None and high is not None and rival.timing.low > high:
            return f"beaten by {rival.variant}"
    return f"behind {rivals[0].variant}, not settled"


# -- what policies hold ----------------------------------------------------------------------------------------------

HELD = {
    "mask": "Masks",
    "kv": "Keys and values",
    "rope": "RoPE tables",
    "caches": "Masks, keys and values, and RoPE tables",
    "resident": "Peak resident memory above the weights",
}
"""What a sweep shows of each step; all but the last are counted tensors."""


@dataclass(frozen=True)
class Step:
    """What was held after `lengths` different lengths: bytes by a key of HELD, as measured and as computed."""

    lengths: int
    measured: Mapping[str, float]
    computed: Mapping[str, float]


@dataclass(frozen=True)
class Policy:
    """One variant's sweep. `longest` is the longest length; `reason` says why something is missing."""

    workload: str
    variant: str
    weights_bytes: float | None
    longest: int
    steps: tuple[Step, ...]
    reason: str


def read_policies(run: data.Run) -> list[Policy]:
    """The sweeps of memory_sweep.json. Raises RunError."""
    rows = pass_schema.MEMORY_SWEEP.validate_python(RunFolder(run.path).records(MEMORY_SWEEP))
    return [_policy(row) for row in rows]


def _policy(row: pass_schema.Sweep) -> Policy:
    peaks = {1 << power: peak for power, peak in enumerate(row.peak_bytes or ())}  # by number of lengths
    tensors = {len(step.lengths): step for step in row.steps if step.lengths}
    steps = []
    for count in sorted(tensors) or peaks:
        step = tensors.get(count, pass_schema.SweepStep(lengths=[]))
        measured = _held(step.held)
        if count in peaks and row.loaded_bytes is not None:
            measured["resident"] = peaks[count] - row.loaded_bytes
        steps.append(Step(count, measured, _held(step.computed.held if step.computed else {})))
    return Policy(
        workload=row.workload,
        variant=row.variant,
        weights_bytes=row.weights_bytes or None,
        longest=max(row.served or [0]),
        steps=tuple(steps),
        reason=row.reason or "",
    )


def _held(kinds: Mapping[str, int]) -> dict[str, float]:
    held: dict[str, float] = {kind: kinds[kind] for kind in ("mask", "kv", "rope") if kind in kinds}
    return held | ({"caches": sum(held.values())} if len(held) == 3 else {})


def percent_of(size: float | None, weights: float | None) -> str:
    """How much of the weights' bytes."""
    return "–" if size is None or not weights else f"{100 * size / weights:.3g} % of the weights"
