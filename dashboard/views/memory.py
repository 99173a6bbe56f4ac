"""Memory and loading of a run as the Memory page shows them: time against memory, policies, loads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llama_workbench.dashboard.views import data, values
from llama_workbench.dashboard.views.timings import Timing, problem_of, timing
from llama_workbench.harness.evidence.judge import Evidence
from llama_workbench.harness.metrics.loading.loading import (
    METRICS,
    LoadEffect,
    LoadShare,
    load_effects,
    load_shares,
)
from llama_workbench.harness.stats.confidence import fixed_interval
from llama_workbench.harness.store.folder import RunError, RunFolder

# -- time against memory -------------------------------------------------------------------------------------------

FRONT = "on the front"


@dataclass(frozen=True)
class Spot:
    """A variant in time and memory. `standing`: FRONT, "beaten by X", or "behind X, not settled"."""

    variant: str
    amount: float
    timing: Timing
    standing: str = ""


def tradeoff(run: data.Run, evidence: Evidence | None, workload: str, field: str) -> tuple[list[Spot], list[str]]:
    """Every variant of a workload with its bytes (a field of `data.Memory`) and its speed-up over the baseline.

    Fastest first. Also who could not be placed, each with the reason.
    """
    baseline = values.text(data.experiment(run, workload).get("baseline"))
    spots, missing = [], []
    for (where, variant), row in run.memory.items():
        if where != workload:
            continue
        amount = getattr(row, field)
        found = timing(run, evidence, workload, variant, baseline)
        if amount is None:
            missing.append(f"{variant}: {row.reason or 'its memory was not measured'}")
        elif found.ratio is None:
            missing.append(f"{variant}: {found.warning}")
        else:
            spots.append(Spot(variant, amount, found))
    spots.sort(key=lambda spot: -(spot.timing.ratio or 0))
    return [Spot(spot.variant, spot.amount, spot.timing, _standing(spot, spots)) for spot in spots], missing


def _standing(spot: Spot, spots: Sequence[Spot]) -> str:
    """Where a variant lies to the front: those that no other one beats in time without needing more memory."""

    def ratio(one: Spot) -> float:
        return one.timing.ratio or 0.0

    def better(other: Spot) -> bool:
        no_worse = other.amount <= spot.amount and ratio(other) >= ratio(spot)
        return no_worse and (other.amount, ratio(other)) != (spot.amount, ratio(spot))

    rivals = sorted((other for other in spots if better(other)), key=ratio, reverse=True)
    if not rivals:
        return FRONT
    for rival in rivals:
        low, high = rival.timing.low, spot.timing.high
        if low is not None and high is not None and low > high:
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


def read_policies(run: data.Run) -> tuple[list[Policy], str]:
    """The sweeps of memory_sweep.json, and a problem where it cannot be read."""
    try:
        rows = RunFolder(run.path).read_memory_sweep()
    except RunError as error:
        return [], problem_of(error)
    return [_policy(row) for row in rows], ""


def _policy(row: Mapping[str, Any]) -> Policy:
    served = [values.number(length) for length in row.get("served") or [] if values.number(length)]
    loaded = values.number(row.get("loaded_bytes"))
    peaks = row.get("peak_bytes")
    peaks = [values.number(peak) for peak in peaks] if isinstance(peaks, list) else []
    tensors = {
        len(lengths): step
        for step in values.records(row.get("steps"))
        if isinstance(lengths := step.get("lengths"), list) and lengths
    }
    steps = []
    for count in sorted(tensors) or [1 << power for power in range(len(peaks))]:
        step = tensors.get(count, {})
        measured = _held(values.mapping(step.get("held")))
        place = int(math.log2(count))
        peak = peaks[place] if place < len(peaks) and count == 1 << place else None
        if peak is not None and loaded is not None:
            measured["resident"] = peak - loaded
        steps.append(Step(count, measured, _held(values.mapping(values.mapping(step.get("computed")).get("held")))))
    return Policy(
        workload=values.text(row.get("workload")),
        variant=values.text(row.get("variant")),
        weights_bytes=values.positive(row.get("weights_bytes")),
        longest=int(max((length for length in served if length is not None), default=0)),
        steps=tuple(steps),
        reason=values.text(row.get("reason")),
    )


def _held(kinds: Mapping[str, Any]) -> dict[str, float]:
    found = {kind: size for kind in ("mask", "kv", "rope") if (size := values.number(kinds.get(kind))) is not None}
    return found | ({"caches": sum(found.values())} if len(found) == 3 else {})


# -- loading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Time:
    """Milliseconds of one thing over `count` loads: geometric mean with its t interval (None with too few)."""

    value: float
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True)
class Load:
    """One loader with a cold or warm page cache. `times`: by "open", "touched" (every byte read too), "first_token"."""

    checkpoint: str
    loader: str
    cache: str
    reason: str
    file_bytes: float | None
    peak_bytes: float | None  # the most of all loads
    prompt_tokens: int
    loads: int
    times: Mapping[str, Time]
    against: Mapping[str, LoadEffect]
    share: LoadShare


def read_loads(run: data.Run) -> tuple[list[Load], str]:
    """The records of loading.json and what they mean, and a problem where it cannot be read.

    Intervals hold at once, within each of the three families (times, ratios, shares), at the report's confidence.
    """
    try:
        records = RunFolder(run.path).read_loading()
    except RunError as error:
        return [], problem_of(error)
    alpha = run.alpha or 0.01
    shares = load_shares(records, alpha=alpha)
    against: dict[tuple[str, str, str], dict[str, LoadEffect]] = {}
    for effect in load_effects(records, alpha=alpha):
        against.setdefault((effect.checkpoint, effect.loader, effect.cache), {})[effect.metric] = effect
    loads = []
    for record, share in zip(records, shares, strict=True):
        peaks = [peak for load in record["loads"] if (peak := values.number(load.get("peak_bytes"))) is not None]
        loads.append(
            Load(
                checkpoint=record["checkpoint"],
                loader=record["loader"],
                cache=record["cache"],
                reason=values.text(record["reason"]),
                file_bytes=record.get("file_bytes"),
                peak_bytes=max(peaks, default=None),
                prompt_tokens=record.get("prompt_tokens", 0),
                loads=len(record["loads"]),
                times=_times(record, alpha / (len(records) * len(METRICS))),
                against=against.get((record["checkpoint"], record["loader"], record["cache"]), {}),
                share=share,
            )
        )
    return loads, ""


def _times(record: Mapping[str, Any], alpha: float) -> dict[str, Time]:
    samples = {
        "open": [load["open_ns"] for load in record["loads"]],
        "touched": [load["touched_ns"] for load in record["loads"]],
        "first_token": [first["open_ns"] + first["build_ns"] + first["first_ns"] for first in record["first_tokens"]],
    }
    found = {}
    for metric, times in samples.items():
        if times:
            interval = fixed_interval(np.log(times) - math.log(1e6), alpha)
            low, high = (
                math.exp(end) if math.isfinite(end) and end < 700 else None for end in (interval.low, interval.high)
            )
            found[metric] = Time(math.exp(interval.centre), low, high, interval.n)
    return found
