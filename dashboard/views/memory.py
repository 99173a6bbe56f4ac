"""Memory of a run: time against memory, and what caching policies hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llama_workbench import variants
from llama_workbench.harness.evidence.evidence import Evidence
from llama_workbench.harness.profilers.peak_memory import Memory
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.forms import MEMORY_SWEEP, Sweep, SweepStep
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
}
"""What a sweep shows of each step."""


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
    rows: list[Sweep] = RunFolder(run.path).read(MEMORY_SWEEP)
    return [Policy(row, tuple(_step(step) for step in row.steps if step.lengths)) for row in rows]


def _step(step: SweepStep) -> Step:
    return Step(len(step.lengths), _held(step.held), _held(step.computed.held if step.computed else {}))


def _held(kinds: Mapping[str, int]) -> dict[str, float]:
    held: dict[str, float] = {kind: kinds[kind] for kind in ("mask", "kv", "rope") if kind in kinds}
    return held | ({"caches": sum(held.values())} if len(held) == 3 else {})


def percent_of(size: float | None, weights: float | None) -> str:
    """How much of the weights' bytes, in percent."""
    return "–" if size is None or not weights else f"{100 * size / weights:.3g} %"
