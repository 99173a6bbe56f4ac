"""Prints how often the interval of a crossing, and that of an exponent, misses the truth: `python -m
studies.simulated_sizes [TRIALS]`. Both sides' times are known curves over the size; processes are drawn."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from llama_workbench.harness.evidence.effect import ALPHA
from llama_workbench.harness.slices.sizes.table import CrossingPoint, Point, crossings, growth
from llama_workbench.harness.spec.comparison import held_together
from llama_workbench.harness.stats.confidence import LookPlan, running_interval

SIZES = (10, 100, 1000, 10_000, 100_000)
Curve = Callable[[float], float]
"""Size → nanoseconds of a call."""

PAIRS: Mapping[str, tuple[Curve, Curve]] = {
    "a list's search against a set's": (lambda n: 40 + 8 * n, lambda n: 900),
    "the same, crossing at a measured size": (lambda n: 100 + 8 * n, lambda n: 900),
    "n log n against n squared": (lambda n: 2000 * n * math.log2(n), lambda n: 30 * n**2 + 5e4),
    "linear with much at the start against n log n": (lambda n: 4e5 + 60 * n, lambda n: 25 * n * math.log2(n)),
    "powers, a straight line": (lambda n: 3e3 * n**0.8, lambda n: 40 * n**1.3),
    "the same code": (lambda n: 50 + 9 * n, lambda n: 50 + 9 * n),
}


@dataclass(frozen=True)
class Rates:
    """Of trials: with a crossing, and of these those whose interval misses it; those whose exponents miss. width: the
    median factor from one end of a crossing's interval to the other."""

    trials: int
    crossed: int
    missed: int
    exponents_missed: int
    width: float


def truth(pair: tuple[Curve, Curve]) -> float:
    """Where the curves cross; NaN where they do not."""

    def apart(size: float) -> float:
        return math.log(pair[0](size) / pair[1](size))

    if apart(SIZES[0]) * apart(SIZES[-1]) >= 0:
        return math.nan
    return float(brentq(apart, SIZES[0], SIZES[-1]))


def trial(
    rng: np.random.Generator, pair: tuple[Curve, Curve], processes: int, noise: float
) -> tuple[list[CrossingPoint], list[bool]]:
    """The crossings that are found, and whether each exponent's interval misses. noise: standard deviation of a log
    ratio; of a log time it is five times that, and its processes share most of it."""
    together = held_together(1, len(SIZES), sized=True)
    level = LookPlan(ALPHA / together, processes)
    points = []
    for size in SIZES:
        centre = math.log(pair[0](size) / pair[1](size))
        interval = running_interval(rng.normal(centre, noise, processes), level)
        sign = 1 if interval.low > 0 else -1 if interval.high < 0 else 0
        points.append(Point(size, interval.centre, interval.low, interval.high, sign))
    missed, logs = list[bool](), np.log(SIZES)
    for curve in pair:
        times = np.log([curve(size) for size in SIZES])
        drawn = times + rng.normal(0, 5 * noise, (processes, 1)) + rng.normal(0, noise, (processes, len(SIZES)))
        grown = growth(SIZES, drawn, LookPlan(ALPHA / 4, processes))
        assert grown is not None
        for value, slope in (
            (grown.whole, np.polyfit(logs, times, 1)[0]),
            (grown.last, (times[-1] - times[-2]) / (logs[-1] - logs[-2])),
        ):
            missed.append(not value.low <= slope <= value.high)
    return crossings(points), missed


def rates(name: str, trials: int, seed: int, *, processes: int = 24, noise: float = 0.03) -> Rates:
    """Of so many trials of a pair of PAIRS."""
    rng, at = np.random.default_rng(seed), truth(PAIRS[name])
    crossed = missed = exponents_missed = 0
    widths: Sequence[float] = []
    for _ in range(trials):
        found, exponents = trial(rng, PAIRS[name], processes, noise)
        crossed += bool(found)
        # One that is not there, or a second one, is a miss as well.
        missed += bool(found) and not (len(found) == 1 and found[0].low <= at <= found[0].high)
        exponents_missed += any(exponents)
        widths = [*widths, *(each.high / each.low for each in found)]
    return Rates(trials, crossed, missed, exponents_missed, float(np.median(widths)) if widths else math.nan)


def main(trials: int) -> None:
    print(f"{trials} trials of 24 processes, sizes {', '.join(f'{size:,}' for size in SIZES)}; at most 1 % may miss\n")
    print("| two sides | true crossing | noise | found | interval misses | from end to end | exponents miss |")
    print("|---|---|---|---|---|---|---|")
    for name, pair in PAIRS.items():
        for noise in (0.01, 0.05):
            seen = rates(name, trials, 1, noise=noise)
            print(
                f"| {name} | {truth(pair):,.4g} | {100 * noise:g} % | {100 * seen.crossed / trials:.4g} % | "
                f"{100 * seen.missed / trials:.3g} % | {seen.width:.3g}x | "
                f"{100 * seen.exponents_missed / trials:.3g} % |"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
