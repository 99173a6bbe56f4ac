"""How an effect changes with the width of the model, the length of the prompt and the position of decoding.

verdicts.json + workloads of run.json --all_series--> Series --sweep--> where it enters or leaves the claimed region
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from llama_workbench.harness.metrics.scaling import EffectSweep, crossover
from llama_workbench.harness.spec.regions import MARGIN_PERCENT, Region
from llama_workbench.harness.stats.confidence import Interval
from llama_workbench.harness.store.verdict_schema import Effect

from . import data

Axis = Literal["width", "length", "position"]
AXES: Mapping[Axis, str] = {
    "width": "width of the model (hidden size)",
    "length": "prompt length T (tokens)",
    "position": "position of decoding (tokens before)",
}


@dataclass(frozen=True)
class Series:
    """One effect over one axis; `name` tells it from others of the same effect.

    effects: by size, ascending. low, high: the region of `claim`, which covers most of them, else ±MARGIN_PERCENT.
    """

    axis: Axis
    name: str
    variant: str
    baseline: str
    metric: str
    effects: Mapping[float, Effect]
    claim: data.Claim | None
    low: float | None
    high: float | None

    @property
    def key(self) -> str:
        """What `?axis=` says of it."""
        return f"{self.axis}~{self.name}"

    @property
    def asked(self) -> str:
        """The region in words."""
        return self.claim.claimed if self.claim and self.claim.claimed else f"same within ±{MARGIN_PERCENT:g} %"

    @cached_property
    def sweep(self) -> EffectSweep:
        """Between which sizes the effect enters or leaves the region; holds with the confidence of the whole report."""
        region = Region(math.log(self.low) if self.low else -math.inf, math.log(self.high) if self.high else math.inf)
        return crossover({size: _interval(effect) for size, effect in self.effects.items()}, region)

    def settled(self, size: float) -> bool:
        """Whether the whole interval at a size lies inside the region, or outside."""
        return self.sweep.states[size] != "open"


Sides = tuple[str, str, str]
"""Variant, baseline, metric."""


def sides_key(sides: Sides) -> str:
    """What `?effect=` says of them."""
    return "~".join(sides)


def link_to(run: data.Run, variant: str, baseline: str, workloads: Collection[str]) -> dict[str, str]:
    """`effect` and `axis` of the series of these two that covers most of the workloads; empty where none has two."""
    best: dict[str, str] = {}
    most = 1
    for sides, series in all_series(run).items():
        for candidate in series if sides[:2] == (variant, baseline) else ():
            covered = sum(effect.workload in workloads for effect in candidate.effects.values())
            if covered > most:
                best, most = {"effect": sides_key(sides), "axis": candidate.key}, covered
    return best


def all_series(run: data.Run) -> dict[Sides, list[Series]]:
    """Every effect that was measured at two or more sizes of something, with all else the same but the size."""
    effects: dict[Sides, dict[str, list[tuple[data.Claim, Effect]]]] = {}  # with the claims that ask about each
    for claim in run.claims:
        for effect in claim.effects:
            ran = data.experiment(run, effect.workload).variants
            if not effect.unit and effect.value is not None and effect.variant in ran:
                by_workload = effects.setdefault((effect.variant, effect.baseline, effect.metric), {})
                by_workload.setdefault(effect.workload, []).append((claim, effect))
    series: dict[Sides, list[Series]] = {}
    for sides, by_workload in effects.items():
        for axis in get_args(Axis):
            for name, sizes in _groups(run, axis, by_workload).items():
                if len(sizes) > 1:
                    series.setdefault(sides, []).append(_series(axis, name, sides, sizes, by_workload))
    return series


USUAL = {"batch": 1, "chunk": None, "lengths": "repeated", "dtype": "float32", "threads": 1, "new_tokens": None}
"""What a workload is where its name need not say so."""


def _groups(run: data.Run, axis: Axis, workloads: Iterable[str]) -> dict[str, dict[float, str]]:
    """Workloads that differ in this axis alone: name of the group → size → workload."""
    groups: dict[str, dict[float, str]] = {}
    for workload in workloads:
        facts = data.experiment(run, workload).workload
        kind, geometry = facts.kind or "", facts.geometry or ""
        what = facts.component or kind
        size: float | None = None
        name = f"{what}, {geometry}"
        if axis == "width":
            checkpoint = (run.manifest.checkpoints or {}).get(geometry)
            size = checkpoint.hidden_size if checkpoint and kind != "component" else None
            name = (
                f"{what} after {_tokens(facts.context)}" if kind == "decode" else f"{what} of {_tokens(facts.tokens)}"
            )
        elif axis == "length" and kind in ("prefill", "component"):
            size = facts.tokens
        elif axis == "position" and kind == "decode":
            size = facts.context
        name += "".join(f", {key} {value}" for key, usual in USUAL.items() if (value := getattr(facts, key)) != usual)
        if size and facts.lengths != "trace":  # a trace has many lengths
            groups.setdefault(name, {}).setdefault(size, workload)
    return groups


def _tokens(count: int | None) -> str:
    return f"{count} token{'s' * (count != 1)}"


def _series(
    axis: Axis,
    name: str,
    sides: Sides,
    sizes: Mapping[float, str],
    by_workload: Mapping[str, list[tuple[data.Claim, Effect]]],
) -> Series:
    asked = [claim for workload in sizes.values() for claim, _ in by_workload[workload] if not claim.is_comparison]
    claim = max(asked, key=asked.count) if asked else None  # the first of those that cover most points
    low, high = (1 / (1 + MARGIN_PERCENT / 100), 1 + MARGIN_PERCENT / 100) if claim is None else (claim.low, claim.high)
    effects = {}
    for size, workload in sorted(sizes.items()):
        of_claim = (effect for one, effect in by_workload[workload] if one is claim)
        effects[size] = next(of_claim, by_workload[workload][0][1])
    return Series(axis, name, *sides, effects, claim, low, high)


def _interval(effect: Effect) -> Interval:
    """Of the log ratio; what was judged confounded, unstable or not evidence settles nothing."""
    doubtful = effect.verdict == "not evidence" or effect.cause.is_doubtful
    return Interval(
        centre=math.log(effect.value) if effect.value else math.nan,
        low=math.log(effect.lower) if effect.lower else -math.inf,
        high=math.log(effect.upper) if effect.upper else math.inf,
        n=effect.rounds,
        unstable=doubtful,
    )
