"""Prints the tables of simulated comparisons of saved runs: `python -m studies.simulated_comparisons`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from llama_workbench.harness.baselines.thresholds import DEFAULTS
from llama_workbench.harness.evidence.effect import ALPHA
from llama_workbench.harness.stats.confidence import running_bounds
from llama_workbench.harness.stats.means import trimmed_mean

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]

NOISE: Mapping[str, Draw] = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "heavy tails (Student t, 3 degrees of freedom)": lambda rng, size: rng.standard_t(3, size),
    "one process in ten off by 10 standard deviations, always the same way": lambda rng, size: (
        rng.standard_normal(size) + 10.0 * (rng.random(size) < 0.1)
    ),
}
SIZES = ((12, 12, 1.0), (12, 40, 1.0), (12, 40, 3.0), (40, 12, 3.0))
"""Processes of the base run and of the new one, and how many times as much those of the new one vary."""


def ends(base: NDArray[np.float64], new: NDArray[np.float64]) -> tuple[float, float]:
    """The interval of the difference."""
    before, after = trimmed_mean(base), trimmed_mean(new)
    assert before is not None and after is not None
    return before.minus(after).ends(ALPHA)


def missed(draw: Draw, sizes: tuple[int, int, float], pairs: int, rng: np.random.Generator) -> float:
    """Share of pairs of runs of the same code whose interval leaves out 0."""
    old, now, spread = sizes
    found = [ends(draw(rng, old), spread * draw(rng, now)) for _ in range(pairs)]
    return sum(not low <= 0 <= high for low, high in found) / pairs


def stopped(effect: float, rng: np.random.Generator, most: int = 59) -> NDArray[np.float64]:
    """Processes of a run that ends as soon as its own interval leaves out 0: the worst that stopping can do here."""
    values = effect + rng.standard_normal(most)
    low, high = running_bounds(values, ALPHA)
    decided = np.flatnonzero((low > 0) | (high < 0))
    return values[: decided[0] + 1] if decided.size else values


def told(processes: int, percent: float, slower: float, pairs: int, rng: np.random.Generator) -> tuple[float, float]:
    """Of pairs of runs whose processes vary by so many percent: the shares that pass and that fail `compare`."""
    limit, shift = math.log1p(DEFAULTS.time / 100), math.log1p(slower / 100)
    draws = percent / 100 * rng.standard_normal((pairs, 2, processes))
    found = [ends(base, new - shift) for base, new in draws]
    return sum(high < limit for _, high in found) / pairs, sum(low > limit for low, _ in found) / pairs


def main(pairs: int) -> None:
    rng = np.random.default_rng(1)
    sys.stdout.write(f"interval of two runs of the same code leaves out 0, alpha = 0.01 ({pairs} pairs a row)\n")
    for name, draw in NOISE.items():
        rates = ", ".join(f"{missed(draw, sizes, pairs, rng):.1%}" for sizes in SIZES)
        sys.stdout.write(f"  {name}: {rates}\n")
    for effect in (0.0, 0.4, 0.7, 1.0, 1.5):
        found = [ends(stopped(effect, rng), stopped(effect, rng)) for _ in range(pairs // 2)]
        rate = sum(not low <= 0 <= high for low, high in found) / len(found)
        sys.stdout.write(f"  stopped by its own interval, effect {effect:g} standard deviations: {rate:.1%}\n")
    sys.stdout.write(f"at a threshold of {DEFAULTS.time:g} %: unchanged code passes, 5 % more time fails\n")
    for percent in (0.5, 1.0, 1.5, 2.0, 3.0):
        for processes in (12, 24, 48):
            passes, _ = told(processes, percent, 0, pairs // 10, rng)
            _, fails = told(processes, percent, 5, pairs // 10, rng)
            sys.stdout.write(f"  processes vary by {percent:g} %, {processes} of them: {passes:.0%}, {fails:.0%}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
