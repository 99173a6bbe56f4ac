"""What a family of workloads shows together: how a time grows over the position, and where over the width an effect is
lost. Pure functions, like `judge`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..spec.regions import Region
from ..stats.confidence import Interval, Method, running_interval
from ..stats.samples import LogTimes, time_differences
from ..store.schema import Effect

# -- over the position -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slope:
    """By how much a call takes longer for each position further on, fitted by a line in each of `rounds` rounds.

    With a `baseline` it is the variant's slope less the baseline's, from times of the same rounds. `low` and `high` are
    infinite while there are too few rounds. `fixed_ns` is where the line starts (median over rounds): what a call costs
    whatever the position. `unstable` as in `confidence.Interval`.
    """

    variant: str
    baseline: str | None
    ns_per_position: float
    low: float
    high: float
    fixed_ns: float
    rounds: int
    unstable: bool = False

    def to_json(self) -> dict[str, Any]:
        """As in a results file; what is not known yet becomes null."""
        numbers = {name: getattr(self, name) for name in ("ns_per_position", "low", "high", "fixed_ns")}
        finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        return {
            "variant": self.variant,
            "baseline": self.baseline,
            **finite,
            "rounds": self.rounds,
            "unstable": self.unstable,
        }


def position_slope(
    times: Mapping[int, LogTimes],
    *,
    variant: str,
    alpha: float,
    baseline: str | None = None,
    method: Method = "both",
) -> Slope:
    """Fit decode time against position, over workloads that differ in the position alone.

    `times`: earlier tokens of a workload (its `context`) → its log times, two workloads or more. A call's true position
    is up to 64 further on, by about as much on each workload and by exactly as much for both sides, so it moves the
    line and hardly turns it. The k-th round of every workload makes the k-th line (ordinary least squares through the
    median times); a workload's later rounds without partners are left out. Between two variants the difference is
    taken pair by pair before the fit, so that what disturbs both falls out.

    Raises ValueError for fewer than two positions.
    """
    if len(times) < 2:
        raise ValueError(f"a slope needs two or more different positions, not {sorted(times)}")
    series = [time_differences(each, variant=variant, baseline=baseline) for each in times.values()]
    rounds = min(map(len, series))
    if rounds == 0:
        return Slope(variant, baseline, math.nan, -math.inf, math.inf, math.nan, 0)
    calls_ns = np.stack([values[:rounds] for values in series], axis=1)  # [rounds, workloads]
    x = np.array(list(times), dtype=np.float64)
    centred = x - x.mean()
    slopes = calls_ns @ centred / (centred @ centred)
    interval = running_interval(slopes, alpha, method)
    return Slope(
        variant=variant,
        baseline=baseline,
        ns_per_position=interval.centre,
        low=interval.low,
        high=interval.high,
        fixed_ns=float(np.median(calls_ns.mean(axis=1) - slopes * x.mean())),
        rounds=rounds,
        unstable=interval.unstable,
    )


def call_difference(times: LogTimes, *, variant: str, baseline: str, alpha: float, method: Method = "both") -> Interval:
    """By how many nanoseconds a call of the baseline takes longer than one of the variant, paired round by round.

    The same rounds as those of the ratio, but in time: what is overhead keeps its nanoseconds while calls grow.
    """
    return running_interval(-time_differences(times, variant=variant, baseline=baseline), alpha, method)


# -- over the width ----------------------------------------------------------------------------------------------------

State = Literal["above", "inside", "below", "open"]


@dataclass(frozen=True)
class Crossing:
    """Somewhere between the sizes `low` and `high` the effect goes from `before` to `after`.

    Both ends are settled; what lies between them was not measured, or is open. `estimate` is where the effects at the
    two ends, joined by a line over the logarithm of the size, pass the boundary: a guess inside the bracket, no more.
    """

    low: float
    high: float
    before: State
    after: State
    estimate: float


@dataclass(frozen=True)
class Sweep:
    """Where each size's effect lies (its whole interval, else "open"), and between which sizes that changes."""

    states: Mapping[float, State]
    crossings: tuple[Crossing, ...]

    def describe(self) -> str:
        """In one line, such as "above up to 512, inside from 2048 (crosses at about 900); open at 1024"."""
        settled = [(size, state) for size, state in self.states.items() if state != "open"]
        if not settled:
            return "open at every size"
        parts = [f"{settled[0][1]} at every size that is settled"]
        if self.crossings:
            parts = [f"{self.crossings[0].before} up to {self.crossings[0].low:g}"]
            parts += [
                f"{c.after} from {c.high:g} (crosses at about {float(f'{c.estimate:.2g}'):g})" for c in self.crossings
            ]
        still_open = [f"{size:g}" for size, state in self.states.items() if state == "open"]
        return ", ".join(parts) + (f"; open at {', '.join(still_open)}" if still_open else "")


def crossover(effects: Mapping[float, Interval], region: Region) -> Sweep:
    """Between which sizes an effect leaves or enters a region, say ±1 %.

    `effects` maps size (such as the width of a model) → interval of its log ratio; the order does not matter. All
    brackets hold at once with the confidence that all the intervals have together.
    """
    sizes = sorted(effects)
    states = {size: _state(effects[size], region) for size in sizes}
    settled = [size for size in sizes if states[size] != "open"]
    crossings = tuple(
        Crossing(low, high, states[low], states[high], _passed(low, high, effects, states, region))
        for low, high in itertools.pairwise(settled)
        if states[low] != states[high]
    )
    return Sweep(states, crossings)


def interval_of(effect: Effect) -> Interval:
    """A judged effect as an interval of its log ratio (an unstable one is unbounded)."""
    unstable = any(warning.startswith("unstable") for warning in effect.warnings)
    low = math.log(effect.low) if effect.low > 0 and not unstable else -math.inf
    high = math.log(effect.high) if not unstable else math.inf
    centre = math.log(effect.ratio) if effect.ratio > 0 else math.nan
    return Interval(centre, low, high, effect.rounds, unstable)


def _state(interval: Interval, region: Region) -> State:
    if interval.unstable:
        return "open"
    if region.contains(interval.low, interval.high):
        return "inside"
    if region.excludes(interval.low, interval.high):
        return "above" if interval.low > region.high else "below"
    return "open"


def _passed(
    low: float, high: float, effects: Mapping[float, Interval], states: Mapping[float, State], region: Region
) -> float:
    """The size at which the line between two settled effects passes the boundary between them."""
    passed = {states[low], states[high]}
    boundary = region.high if "above" in passed else region.low
    if "inside" not in passed:  # right through: the middle of the region
        boundary = (region.low + region.high) / 2
    start, end = effects[low].centre, effects[high].centre
    part = (boundary - start) / (end - start)
    return math.exp(math.log(low) + part * (math.log(high) - math.log(low)))
