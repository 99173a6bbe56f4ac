"""Memory of a run: time against memory, what caching policies hold, and loading of checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from llama_workbench import variants
from llama_workbench.harness.evidence.evidence import Evidence
from llama_workbench.harness.evidence.numbers import exp
from llama_workbench.harness.metrics.loading.files import LOADING, Loading
from llama_workbench.harness.metrics.loading.metric import METRICS, load_effects, load_shares
from llama_workbench.harness.metrics.memory.files import MEMORY_SWEEP, Sweep, SweepStep
from llama_workbench.harness.profilers.peak_memory import Memory
from llama_workbench.harness.stats.confidence import Interval, fixed_interval
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.verdict_schema import Effect

from .. import words
from . import data
from .samples import timing

AMOUNTS = {
    "peak_transient_bytes": "Peak transient, above the weights",
    "parameter_bytes": "Parameters",
    "cache_bytes": "Kept: caches, copies of weights",
}
"""What is shown of a row of memory.json, each on an axis of its own: they differ by orders of magnitude."""

OF_FUNCTIONS = {"peak_transient_bytes": "Peak of a call", "kept_bytes": "Kept after a call"}
"""The same of a function. Older runs do not know what is kept."""

TOGETHER = "together_bytes"
COUNTED = {TOGETHER: "Kept and peak transient, above the weights", **AMOUNTS}
"""What time can be set against: what a variant needs beside the weights, and its parts."""


def amount_of(row: Memory, field: str) -> float | None:
    """The bytes of a row by a key of COUNTED; None where they were not measured."""
    if field != TOGETHER:
        amount: float | None = getattr(row, field)
        return amount
    if row.cache_bytes is None or row.peak_transient_bytes is None:
        return None
    return row.cache_bytes + row.peak_transient_bytes


def differences(rows: Sequence[Memory], field: str, baseline: str) -> list[str]:
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
BEATEN = "beaten"
OPEN = "not settled"
SAME_AMOUNT = 1.01
"""Of two amounts: within 1 % neither is said to need more memory."""

RANKS = (FRONT, BEATEN, OPEN)
"""What a rank comes to."""


@dataclass(frozen=True)
class Spot:
    """A variant in time (at `alpha`) and memory."""

    variant: str
    amount: float
    timing: Effect
    alpha: float
    standing: str = FRONT  # one of RANKS
    rival: str = ""  # the variant that beats it, or may

    @property
    def rank(self) -> str:
        """Its standing in words: "beaten by X", "behind X, not settled"."""
        ranks = {BEATEN: f"{BEATEN} by {self.rival}", OPEN: f"behind {self.rival}, {OPEN}"}
        return ranks.get(self.standing, self.standing)


def tradeoff(run: data.Run, evidence: Evidence | None, workload: str, field: str) -> tuple[list[Spot], dict[str, str]]:
    """Every variant with its bytes (a key of COUNTED) and speed-up, fastest first; and why each other has no place."""
    baseline = data.experiment(run, workload).baseline or ""
    spots, missing = list[Spot](), dict[str, str]()
    for (where, variant), row in run.memory.items():
        if where != workload:
            continue
        amount = amount_of(row, field)
        time, alpha = timing(run, evidence, workload, variant, baseline)
        # Outside of torch only what it hands over is counted.
        if variant in variants.names() and variants.get(variant).engine is not None:
            missing[variant] = "an engine, whose own memory is not counted"
        elif amount is None:
            missing[variant] = row.reason or "its memory was not measured"
        elif time.value is None:
            missing[variant] = "; ".join(time.said) or words.told(time)
        else:
            spots.append(Spot(variant, amount, time, alpha))
    spots.sort(key=lambda spot: -(spot.timing.value or 0))
    return [_ranked(spot, spots) for spot in spots], missing


def _ranked(spot: Spot, spots: Sequence[Spot]) -> Spot:
    """On the front where no other variant is faster without needing more memory; else behind the one that is."""

    def gain(other: Spot) -> float:
        return other.timing.value or 0.0

    high = spot.timing.upper
    rivals = [
        other
        for other in spots
        if (gain(other) > gain(spot) and other.amount <= SAME_AMOUNT * spot.amount)
        or (gain(other) == gain(spot) and other.amount < spot.amount)
    ]
    if not rivals:
        return spot
    rivals.sort(key=gain, reverse=True)
    for rival in rivals:
        if rival.timing.lower is not None and high is not None and rival.timing.lower > high:
            return replace(spot, standing=BEATEN, rival=rival.variant)
    return replace(spot, standing=OPEN, rival=rivals[0].variant)


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
    """One variant's sweep."""

    row: Sweep
    steps: tuple[Step, ...]

    @property
    def longest(self) -> int:
        """The longest length."""
        return max(self.row.served or [0])


def read_policies(run: data.Run) -> list[Policy]:
    """The sweeps of memory_sweep.json. Raises RunError."""
    rows = RunFolder(run.path).read(MEMORY_SWEEP)
    return [_policy(row) for row in rows]


def _policy(row: Sweep) -> Policy:
    peaks = {1 << power: peak for power, peak in enumerate(row.peak_bytes or ())}  # by number of lengths
    tensors = {len(step.lengths): step for step in row.steps if step.lengths}
    steps = []
    for count in sorted(tensors) or peaks:
        step = tensors.get(count, SweepStep(lengths=[]))
        measured = _held(step.held)
        if count in peaks and row.loaded_bytes is not None:
            measured["resident"] = peaks[count] - row.loaded_bytes
        steps.append(Step(count, measured, _held(step.computed.held if step.computed else {})))
    return Policy(row, tuple(steps))


def _held(kinds: Mapping[str, int]) -> dict[str, float]:
    held: dict[str, float] = {kind: kinds[kind] for kind in ("mask", "kv", "rope") if kind in kinds}
    return held | ({"caches": sum(held.values())} if len(held) == 3 else {})


def percent_of(size: float | None, weights: float | None) -> str:
    """How much of the weights' bytes."""
    return "–" if size is None or not weights else f"{100 * size / weights:.3g} % of the weights"


# -- loading ----------------------------------------------------------------------------------------------------------

LOADING_SHARE = "share of the time to first token"


@dataclass(frozen=True)
class Load:
    """One loader with a cold or warm page cache. `times`: by "open", "touched" (every byte read too), "first_token".
    `against`: log ratio t_baseline / t_loader of "touched"."""

    row: Loading
    times: Mapping[str, Effect]
    against: Interval | None
    share: Interval

    @property
    def peak_bytes(self) -> float | None:
        """The most of all loads."""
        return max((load.peak_bytes for load in self.row.loads if load.peak_bytes is not None), default=None)


def read_loads(run: data.Run) -> list[Load]:
    """The records of loading.json and what they mean; each family of intervals holds at once. Raises RunError."""
    records: list[Loading] = RunFolder(run.path).read(LOADING)
    alpha = run.alpha
    against = load_effects(records, alpha=alpha)
    return [
        Load(
            row=row,
            times=_times(row, alpha / (len(records) * len(METRICS))),
            against=against.get((row.checkpoint, row.loader, row.cache), {}).get("touched"),
            share=share,
        )
        for row, share in zip(records, load_shares(records, alpha=alpha), strict=True)
    ]


def _times(row: Loading, alpha: float) -> dict[str, Effect]:
    """Geometric means over the loads in milliseconds, with t intervals."""
    samples = {
        "open": [load.open_ns for load in row.loads],
        "touched": [load.touched_ns for load in row.loads],
        "first_token": [first.open_ns + first.build_ns + first.first_ns for first in row.first_tokens],
    }
    intervals = {metric: fixed_interval(np.log(ns) - math.log(1e6), alpha) for metric, ns in samples.items()}
    return {
        metric: data.unasked(_scaled(interval, lambda log: exp(log) or -math.inf), metric=metric, unit="ms")
        for metric, interval in intervals.items()
    }


def _scaled(interval: Interval, scale: Callable[[float], float]) -> Interval:
    """The same in another unit."""
    return replace(interval, centre=scale(interval.centre), low=scale(interval.low), high=scale(interval.high))


def loading_shares(run: data.Run, geometry: str, here: Sequence[Load]) -> data.Claim:
    """The shares as rows of a forest plot: as judged where a claim asked, else with the page's own interval."""
    judged: dict[str, tuple[data.Claim, Effect]] = {}
    for claim in run.claims:
        for effect in claim.effects:
            if effect.unit and data.experiment(run, effect.workload).workload.geometry == geometry:
                judged.setdefault(effect.metric, (claim, effect))
    asked: list[data.Claim] = []
    rows = []
    for load in here:
        name, share = f"{load.row.loader}, {load.row.cache}", load.share
        if known := judged.get(f"{LOADING_SHARE}: {name} page cache"):
            asked.append(known[0])
            rows.append(replace(known[1], workload=name, named="", variant="", baseline="", metric=LOADING_SHARE))
        elif share.n:
            percent = _scaled(share, lambda part: 100 * part)
            rows.append(data.unasked(percent, workload=name, metric=LOADING_SHARE, unit="%"))
    shown = asked[0] if asked else data.figure("Loading", run.alpha, ())
    return replace(shown, alpha=run.alpha, effects=tuple(rows))
