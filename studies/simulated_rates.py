"""Prints the tables of simulated error rates: `python -m studies.simulated_rates [SERIES]`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from llama_workbench.harness.evidence.effect import ALPHA
from llama_workbench.harness.judge.parts import shared_alpha
from llama_workbench.harness.spec.regions import Region
from llama_workbench.harness.stats.confidence import Level, LookPlan, looks_reached, running_interval
from llama_workbench.harness.stats.means import is_dependent

ROUNDS = 300
Noise = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]


def wandering(rng: np.random.Generator, shape: tuple[int, int], *, correlation: float) -> NDArray[np.float64]:
    """Autoregressive series of unit variance, rounds along the last axis."""
    x = rng.standard_normal(shape)
    for k in range(1, shape[-1]):
        x[:, k] = correlation * x[:, k - 1] + math.sqrt(1 - correlation**2) * x[:, k]
    return x


def coin(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return rng.choice(np.array([-1.0, 1.0]), shape)


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return rng.standard_normal(shape)


def busy(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """In units of the quiet spread, 0.5 %: one round in ten is off by 20-50 %, either way."""
    off = coin(rng, shape) * rng.uniform(40, 100, shape)
    return np.where(rng.random(shape) < 0.1, off, rng.standard_normal(shape))


SYMMETRIC: Mapping[str, Noise] = {
    "normal": normal,
    "heavy tails (Student t, 3 degrees of freedom)": lambda rng, shape: rng.standard_t(3, shape),
    "busy machine (one round in ten off by 20-50 %, either way)": busy,
    "normal, spread wandering slowly by a factor of e": lambda rng, shape: (
        rng.standard_normal(shape) * np.exp(wandering(rng, shape, correlation=0.97))
    ),
    # What two adjacent calls do not share of a common drift has the sign of their order, which a coin decides.
    "drift common to both sides, order by coin flip": lambda rng, shape: (
        0.2 * wandering(rng, shape, correlation=0.99) * coin(rng, shape) + rng.standard_normal(shape)
    ),
    "effect of the place in the pair, twice the noise": lambda rng, shape: (
        2 * coin(rng, shape) + rng.standard_normal(shape)
    ),
    "effect of the place in the pair, no noise": lambda rng, shape: (
        coin(rng, shape) + 1e-6 * rng.standard_normal(shape)
    ),
}
"""What the coin flip makes of a machine's noise; rounds independent, but for slow changes of the spread."""

CORRELATED: Mapping[str, Noise] = {
    "each round correlated 0.1 with the next": partial(wandering, correlation=0.1),
    "each round correlated 0.3 with the next": partial(wandering, correlation=0.3),
}

PSEUDO_MEDIAN_OF_EXPONENTIAL = float(stats.gamma.ppf(0.5, 2)) / 2


def miss(d: NDArray[np.float64], level: Level, truth: float = 0.0) -> NDArray[np.bool_]:
    """Which series (rows) have a look that leaves out the truth: where its signed-rank sum lies in a tail."""
    low, high = outside(d, level, truth)
    return low | high


def outside(d: NDArray[np.float64], level: Level, value: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which series (rows) have a look whose interval lies below `value`, and which have one above it."""
    below, above = np.zeros(len(d), dtype=bool), np.zeros(len(d), dtype=bool)
    for look in looks_reached(d.shape[1], level):
        low, high = _tails(d[:, : look.rounds] - value, look.rank)
        below |= low
        above |= high
    return below, above


def _tails(seen: NDArray[np.float64], rank: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which series (rows) have their signed-rank sum in the lower tail, and which in the upper one."""
    ranks = np.argsort(np.argsort(np.abs(seen), axis=1), axis=1) + 1
    positive = (ranks * (seen > 0)).sum(axis=1)
    return positive < rank, seen.shape[1] * (seen.shape[1] + 1) // 2 - positive < rank


def answers(d: NDArray[np.float64], region: Region, alpha: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which series (rows) have their interval inside the region at some look, and which outside it."""
    never, always = np.zeros(len(d), dtype=bool), np.ones(len(d), dtype=bool)
    below_low, above_low = outside(d, alpha, region.low) if math.isfinite(region.low) else (never, always)
    below_high, above_high = outside(d, alpha, region.high) if math.isfinite(region.high) else (always, never)
    return above_low & below_high, below_low | above_high


def wrong_verdicts(
    truths: list[float], region: Region, *, parts: int, rng: np.random.Generator, shared: float
) -> dict[str, float]:
    """Share of simulated parts with a false verdict, by its word. truths: of the part's effects, in standard deviations
    of a round, as the region; shared: how much of the noise the effects have in common, 0 to 1."""
    common = rng.standard_normal((parts, 120))
    own = [rng.standard_normal((parts, 120)) for _ in truths]
    series = [
        truth + math.sqrt(shared) * common + math.sqrt(1 - shared) * noise
        for truth, noise in zip(truths, own, strict=True)
    ]
    lies_in = [region.low <= truth <= region.high for truth in truths]
    yes, no = zip(*(answers(d, region, ALPHA) for d in series), strict=True)
    supported, refuted = np.logical_and.reduce(yes), np.logical_and.reduce(no)
    yes, no = zip(*(answers(d, region, shared_alpha(ALPHA, len(truths))) for d in series), strict=True)
    depends = np.logical_or.reduce(yes) & np.logical_or.reduce(no) & ~supported & ~refuted
    misplaced = np.logical_or.reduce([no[k] if inside else yes[k] for k, inside in enumerate(lies_in)])
    return {
        "supported": 0.0 if all(lies_in) else float(supported.mean()),
        "refuted": float(refuted.mean()) if any(lies_in) else 0.0,
        "depends": float((depends & misplaced).mean()),
    }


def half_width(rounds: int, rng: np.random.Generator) -> float:
    """Median half width on 300 normal series, in standard deviations of a round over the root of the rounds."""
    intervals = [running_interval(d, ALPHA) for d in rng.standard_normal((300, rounds))]
    return math.sqrt(rounds) * float(np.median([(each.high - each.low) / 2 for each in intervals]))


HORIZON = 112
PLANS: Mapping[str, Level] = {
    "alpha alone": ALPHA,
    "horizon": LookPlan(ALPHA, HORIZON),
    "horizon, one-sided": LookPlan(ALPHA, HORIZON, one_sided=True),
}


def luck(rng: np.random.Generator, shape: tuple[int, int], *, deviation: float, processes: bool) -> NDArray[np.float64]:
    """Unit noise, and what a process draws once: for all rounds of a series, or anew in each process."""
    drawn = rng.standard_normal(shape if processes else (shape[0], 1))
    return rng.standard_normal(shape) + deviation * drawn


def drifting(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Unit noise, and a drift of one deviation from the first value to the last, around 0."""
    return rng.standard_normal(shape) + np.linspace(-0.5, 0.5, shape[1])


def preempted(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Unit noise; one value in fifty is off by 1 to 5 deviations, and always the same side pays."""
    return rng.standard_normal(shape) + (rng.random(shape) < 0.02) * rng.uniform(1, 5, shape)


UNITS: Mapping[str, Noise] = {
    "independent": normal,
    **{
        f"luck of a process {deviation:g} %, {unit}": partial(luck, deviation=deviation, processes=unit == "processes")
        for deviation in (0.1, 0.3, 0.5)
        for unit in ("rounds of one", "processes")
    },
    **{f"each value correlated {c:g} with the next": partial(wandering, correlation=c) for c in (0.2, 0.5, 0.8)},
    "drift of 1 % over the run": drifting,
    "preemption of one side": preempted,
}
"""In units of the spread of a value, 1 %."""


def stops(d: NDArray[np.float64], level: Level) -> NDArray[np.int_]:
    """After how many values each series (row) has an interval that leaves out 0; 0: never."""
    found = np.zeros(len(d), dtype=int)
    for look in looks_reached(d.shape[1], level):
        low, high = _tails(d[:, : look.rounds], look.rank)
        found[(found == 0) & (low | high)] = look.rounds
    return found


def settled(d: NDArray[np.float64], stopped: NDArray[np.int_]) -> float:
    """Share of the series that stopped after so many values and settle something then: they do not look dependent, or
    each of them says so by itself."""
    return float(np.mean([bool(n) and _settles(row[:n]) for row, n in zip(d, stopped, strict=True)]))


def _settles(values: NDArray[np.float64]) -> bool:
    return not is_dependent(values) or bool(values.min() > 0 or values.max() < 0)


def worth(level: Level, rng: np.random.Generator) -> str:
    """How wide its interval is at the horizon, and when it decides about an effect 3 to 5 errors off its limit."""
    intervals = [running_interval(d, level) for d in rng.standard_normal((300, HORIZON))]
    half = math.sqrt(HORIZON) * float(np.median([(each.high - each.low) / 2 for each in intervals]))
    texts = [f"half width {half:.2f} standard errors"]
    for off in (3, 4, 5):
        stopped = stops(rng.standard_normal((2000, HORIZON)) + off / math.sqrt(HORIZON), level)
        median = float(np.median(np.where(stopped == 0, math.inf, stopped)))
        texts.append(f"{off} off: {np.mean(stopped > 0):.0%} decided, the median after {median:g}")
    return "; ".join(texts)


def print_plans(series: int, rng: np.random.Generator) -> None:
    """Wrong words at truth 1 within the horizon, and what a plan of looks is worth."""
    print(
        f"any look of {HORIZON} values leaves out the truth (one-sided: at one end); -> where dependent values settle"
    )
    print("what each says by itself, judged when it is decided; (in brackets: with all values)")
    for name, noise in UNITS.items():
        d = noise(rng, (series // 2, HORIZON))
        rates = []
        for plan in (PLANS["alpha alone"], PLANS["horizon"]):
            stopped = stops(d, plan)
            whole = settled(d, np.where(stopped, HORIZON, 0))
            rates.append(f"{np.mean(stopped > 0):.2%} -> {settled(d, stopped):.2%} ({whole:.2%})")
        low, high = outside(d, PLANS["horizon, one-sided"], 0.0)
        one_end = float(max(low.mean(), high.mean()))
        print(f"  {name}: alpha alone {rates[0]}, horizon {rates[1]}, one-sided {one_end:.2%}", flush=True)
    for name, plan in PLANS.items():
        print(f"  {name}: {worth(plan, rng)}", flush=True)


def two_groups(rng: np.random.Generator, shape: tuple[int, int], *, apart: float) -> NDArray[np.float64]:
    """Processes of two kinds, as likely one as the other, alike within each."""
    return apart / 2 * coin(rng, shape) + 0.002 * rng.standard_normal(shape)


EARLY_NOISE: Mapping[str, Noise] = {
    "normal, 2 %": lambda rng, shape: 0.02 * rng.standard_normal(shape),
    "normal, 40 %": lambda rng, shape: 0.4 * rng.standard_normal(shape),
    "Student t, 3 degrees of freedom, times 10 %": lambda rng, shape: 0.1 * rng.standard_t(3, shape),
    "two kinds of processes, 20 % apart": partial(two_groups, apart=0.2),
    "two kinds of processes, 40 % apart": partial(two_groups, apart=0.4),
    "one process in ten 30 % slower": lambda rng, shape: (
        0.3 * (rng.random(shape) < 0.1) + 0.002 * rng.standard_normal(shape)
    ),
}
"""In log units."""


def early_misses(series: int, noise: Noise, rng: np.random.Generator) -> float:
    """Share of the series of which an early look leaves out the truth, 0."""
    early = [look for look in looks_reached(8, LookPlan(ALPHA, 24, early=True)) if look.least]
    d = noise(rng, (series, early[-1].rounds))
    missed = np.zeros(series, dtype=bool)
    for look in early:
        seen = d[:, : look.rounds]
        half = np.vectorize(look.half_width)(seen.std(axis=1, ddof=1))
        missed |= np.abs(seen.mean(axis=1)) > half
    return float(missed.mean())


def main(series: int) -> None:
    rng = np.random.default_rng(1)
    print(f"an early look leaves out the truth, at alpha = {ALPHA} ({10 * series} series a row)")
    for name, noise in EARLY_NOISE.items():
        print(f"  {name}: {early_misses(10 * series, noise, rng):.3%}", flush=True)
    print_plans(series, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    widths = ", ".join(f"{half_width(rounds, rng):.1f} after {rounds} rounds" for rounds in (12, 24, 72, 219))
    print(f"half width over standard deviation, times the root of the rounds, at alpha = 0.01: {widths}", flush=True)
    rng = np.random.default_rng(1)
    print(f"any look of {ROUNDS} rounds misses the truth, at alpha = 0.01 and 0.001 ({series} series a row)")
    for name, noise in {**SYMMETRIC, **CORRELATED}.items():
        d = noise(rng, (series, ROUNDS))
        print(f"  {name}: {miss(d, 0.01).mean():.2%}, {miss(d, 0.001).mean():.3%}", flush=True)
    d = rng.exponential(1, (series, ROUNDS))
    for name, truth in (("its pseudo-median", PSEUDO_MEDIAN_OF_EXPONENTIAL), ("its mean", 1.0)):
        print(f"  exponential, of {name}: {miss(d, 0.01, truth).mean():.2%}", flush=True)
    print("false verdicts on a part at alpha = 0.01, effects on the edge of what is claimed (120 rounds)")
    edge = Region(0.0, math.inf)
    for shared in (0.0, 0.5, 1.0):
        for name, truths in {
            "one effect, just outside": [-1e-9],
            "three effects, all just inside": [0.0] * 3,
            "three effects, one just outside": [0.0, 0.0, -1e-9],
            "nine effects, one just outside, others far inside": [1.0] * 8 + [-1e-9],
            "nine effects, all just outside": [-1e-9] * 9,
            "nine effects, far on both sides and one on the edge": [1.0] * 4 + [-1.0] * 4 + [-1e-9],
        }.items():
            rates = wrong_verdicts(truths, edge, parts=series // 2, rng=rng, shared=shared)
            said = ", ".join(f"{word} {rate:.2%}" for word, rate in rates.items())
            print(f"  noise shared {shared:g}; {name}: {said}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
