"""Other intervals than ours, tried on the lives of stored runs: `python -m studies.alternatives RUN...`.

For every pair that was measured in lives it takes one log ratio a life and compares widths:

hierarchical  lives as random effects, by Student (Paule & Mandel 1982; Hartung & Knapp 2001); one look
asymptotic    an asymptotic confidence sequence (Waudby-Smith & others, arXiv 2103.06476), tuned to the horizon
betting       a hedged capital process (Waudby-Smith & Ramdas, arXiv 2010.09686) for values within ±BOUND
covariates    by how much the spread of lives falls once the yardstick's time and the page faults are regressed out

Then it draws series of known truth from these very lives (centred, signs flipped at random) and counts how often any
look of a series misses the truth.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from llama_workbench.harness.evidence.effect import ALPHA
from llama_workbench.harness.stats.confidence import LookPlan, looks_reached, pseudo_median, running_interval
from llama_workbench.harness.stats.means import between_variance
from llama_workbench.harness.stats.samples import LogTimes, log_times
from llama_workbench.harness.store.folder import RunFolder

Floats = NDArray[np.float64]

BOUND = 0.5
"""Of a life's log ratio, for betting: sides that differ by 65 % are no question."""

LEAST_LIVES, SERIES = 12, 2_000
YARDSTICK = "yardstick"


class Lives(NamedTuple):
    """A pair's lives: one log ratio and its error within the life each (NaN where it has one sample), the log time of
    the yardstick (NaN: none), the page faults that the sides differ by; and the horizon of its plan."""

    name: str
    values: Floats
    errors: Floats
    yardstick: Floats
    faults: Floats
    horizon: int


def lives_of(folder: Path) -> Iterator[Lives]:
    """All pairs of a run that have enough lives."""
    run = RunFolder(folder)
    manifest, samples = run.read_manifest(), run.read_samples()
    for experiment in manifest["experiments"]:
        workload = experiment["workload"]["name"]
        times = log_times(samples, workload=workload, clock="cpu")
        for pair in experiment["apart"] or [
            {"variant": name, "baseline": experiment["baseline"]} for name in times.variants
        ]:
            if pair["variant"] != pair["baseline"]:
                yield from _lives(times, workload, pair["variant"], pair["baseline"], experiment["horizon"])


def _lives(times: LogTimes, workload: str, variant: str, baseline: str, horizon: int | None) -> Iterator[Lives]:
    sides = times.of((baseline, variant))
    d = sides.logs[:, :, 0] - sides.logs[:, :, 1]
    there = np.isfinite(d).any(axis=1)
    if there.sum() < LEAST_LIVES:
        return
    d, counts = d[there], np.isfinite(d[there]).sum(axis=1)
    spread = np.array([np.nanstd(row, ddof=1) if n > 1 else math.nan for row, n in zip(d, counts, strict=True)])
    yardstick = times.of((YARDSTICK,)).logs[there, :, 0]
    seen = np.isfinite(yardstick).any(axis=1)
    of_yardstick = np.full(len(d), math.nan)
    of_yardstick[seen] = np.nanmedian(yardstick[seen], axis=1)
    faults = (sides.faults[:, :, 0] - sides.faults[:, :, 1])[there].mean(axis=1)
    errors = spread / np.sqrt(counts)
    name = f"{workload} {variant}/{baseline}"
    yield Lives(name, np.nanmedian(d, axis=1), errors, of_yardstick, faults, horizon or len(d))


# -- half widths, log units --------------------------------------------------------------------------------------------


def ours(values: Floats, horizon: int) -> float:
    """Signed ranks at planned looks."""
    interval = running_interval(values, LookPlan(ALPHA, horizon))
    return (interval.high - interval.low) / 2


def hierarchical(lives: Lives) -> float:
    """A random-effects mean by Student, at one look."""
    if np.isnan(lives.errors).any() or (lives.errors == 0).any():
        return math.nan
    weights = 1 / (between_variance(lives.values, lives.errors) + lives.errors**2)
    centre = weights @ lives.values / weights.sum()
    freedom = lives.values.size - 1
    error = math.sqrt(weights @ (lives.values - centre) ** 2 / (freedom * weights.sum()))
    return float(stats.t.ppf(1 - ALPHA / 2, freedom) * error)


def asymptotic(values: Floats, horizon: int) -> float:
    """Their theorem 2.2, with rho for the horizon (their appendix)."""
    n, spread = values.size, float(values.std(ddof=1))
    tuned = (-2 * math.log(ALPHA) + math.log(-2 * math.log(ALPHA) + 1)) / horizon
    return spread * math.sqrt(2 * (n * tuned + 1) / (n * n * tuned) * math.log(math.sqrt(n * tuned + 1) / ALPHA))


def betting(values: Floats) -> float:
    """The means that no capital process refutes, with predictable plug-in bets."""
    x = np.clip((values + BOUND) / (2 * BOUND), 0, 1)
    steps = np.arange(1, x.size + 1)
    mean = (0.5 + np.cumsum(x)) / (steps + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (steps + 1)
    before = np.concatenate([[0.25], variance[:-1]])
    bets = np.sqrt(2 * math.log(2 / ALPHA) / (before * steps * np.log(1 + steps)))
    grid = np.linspace(0.001, 0.999, 4_999)[:, None]
    up = np.log1p(np.minimum(bets, 0.5 / grid) * (x - grid)).cumsum(axis=1).max(axis=1)
    down = np.log1p(-np.minimum(bets, 0.5 / (1 - grid)) * (x - grid)).cumsum(axis=1).max(axis=1)
    kept = grid[np.maximum(up, down) < math.log(2 / ALPHA), 0]
    return float(np.ptp(kept)) / 2 * (2 * BOUND) if kept.size else 0.0


def left_of_spread(lives: Lives) -> float:
    """Spread of lives with the covariates regressed out, over that without; both unbiased."""
    columns = [c - c.mean() for c in (lives.yardstick, lives.faults) if np.isfinite(c).all() and np.ptp(c) > 0]
    if not columns or lives.values.size < 3 * (len(columns) + 1):
        return math.nan
    design = np.column_stack([np.ones(lives.values.size), *columns])
    fitted = design @ np.linalg.lstsq(design, lives.values, rcond=None)[0]
    freedom = lives.values.size - design.shape[1]
    return math.sqrt(float(((lives.values - fitted) ** 2).sum()) / freedom) / float(lives.values.std(ddof=1))


# -- how often they miss -----------------------------------------------------------------------------------------------


def missed(pool: Floats, horizon: int, rng: np.random.Generator) -> tuple[bool, bool]:
    """Whether any look of a series of truth 0 from this pool misses it: ours, and the asymptotic sequence."""
    series = rng.choice(pool, horizon) * rng.choice((-1.0, 1.0), horizon)
    plan = LookPlan(ALPHA, horizon)
    interval = running_interval(series, plan)
    looks = [look.rounds for look in looks_reached(horizon, plan)]
    by_sequence = any(abs(series[:n].mean()) > asymptotic(series[:n], horizon) for n in looks)
    return not interval.low <= 0 <= interval.high, by_sequence


def main() -> None:
    """Print what was found."""
    every = [lives for folder in sys.argv[1:] for lives in lives_of(Path(folder))]
    widths = np.array(
        [
            [
                ours(lives.values, lives.horizon),
                hierarchical(lives),
                asymptotic(lives.values, lives.horizon),
                betting(lives.values),
            ]
            for lives in every
        ]
    )
    whole = np.isfinite(widths[:, 0])
    print(f"{len(every)} pairs, {int(whole.sum())} with an interval; half widths over ours, median [quartiles]")
    for name, column in zip(("hierarchical", "asymptotic", "betting"), widths.T[1:], strict=True):
        over = (column / widths[:, 0])[whole & np.isfinite(column)]
        low, middle, high = np.quantile(over, (0.25, 0.5, 0.75))
        print(f"  {name}: {middle:.2f} [{low:.2f}, {high:.2f}] of {over.size} pairs")
    left = np.array([left_of_spread(lives) for lives in every])
    left = left[np.isfinite(left)]
    low, middle, high = np.quantile(left, (0.25, 0.5, 0.75))
    print(f"spread with covariates regressed out: {middle:.2f} [{low:.2f}, {high:.2f}] of it, {left.size} pairs")
    rng = np.random.default_rng(0)
    pools = [(lives.values - pseudo_median(lives.values), min(lives.horizon, 100)) for lives in every]
    drawn = [missed(*pools[index % len(pools)], rng) for index in range(SERIES)]
    rates = np.mean(drawn, axis=0)
    print(f"of {SERIES} series of known truth any look missed it: ours {rates[0]:.2%}, asymptotic {rates[1]:.2%}")


if __name__ == "__main__":
    main()
