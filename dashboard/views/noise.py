"""How noisy a run was: medians of each round, and drift; and its controls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from llama_workbench.harness.evidence.evidence import checks_text
from llama_workbench.harness.spec.table import Table
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.stats.confidence import Interval
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import Control
from llama_workbench.variants import YARDSTICKS

from .. import words
from . import data, samples

LEVEL = 0.99
"""Confidence of the interval of a median."""


@dataclass(frozen=True)
class Noise:
    """Aggregates of a run's samples.

    rounds: a row for each variant in each round: `workload`, `variant`, `seconds` (timed before it in this run), and
    `ns` (median of a call).
    """

    rounds: pd.DataFrame
    samples: int
    problem: str


def read(run: data.Run) -> Noise:
    """Aggregate the samples of a run; without any where they cannot be read, and `problem` says why."""
    try:
        return aggregate(RunFolder(run.path).read_samples(), samples.clocks(run))
    except RunError as error:
        return Noise(_NO_ROUNDS, 0, words.problem(error))


def aggregate(table: Table, clock: Mapping[str, str]) -> Noise:
    """The same from a table of samples, columns as those of samples.parquet, in the order they were taken.

    Different lengths of one round are taken together.
    """
    if not len(table):
        return Noise(_NO_ROUNDS, 0, "")
    timed = samples.timed(table, clock)
    grouped = timed.groupby(["workload", "variant", "process", "round"], observed=True, sort=False)
    rounds = grouped.agg(seconds=("seconds", "first"), ns=("ns", "median"))
    return Noise(rounds[rounds["ns"] > 0].reset_index(), len(table), "")


_NO_ROUNDS = pd.DataFrame(columns=["workload", "variant", "process", "round", "seconds", "ns"])


def median_ns(noise: Noise, workload: str, variant: str) -> Interval | None:
    """Median over rounds of a call's time, with the exact interval by order statistics; None where not measured."""
    rows = noise.rounds
    times_ns = rows.loc[(rows["workload"] == workload) & (rows["variant"] == variant), "ns"].to_numpy(np.float64)
    if not len(times_ns):
        return None
    median = float(np.median(times_ns))
    ends = stats.quantile_test(times_ns, q=median, p=0.5).confidence_interval(LEVEL)
    low, high = float(ends.low), float(ends.high)
    return Interval(
        median, low if math.isfinite(low) else 0.0, high if math.isfinite(high) else math.inf, len(times_ns)
    )


def drift(noise: Noise, baselines: Mapping[str, str]) -> pd.DataFrame:
    """Median of each round (columns workload, variant, seconds, relative) over its own median, of the yardstick or the
    baseline, whichever took part in more rounds."""
    rows = noise.rounds
    if rows.empty:
        return pd.DataFrame(columns=["workload", "variant", "seconds", "relative"])
    counts = Counter(zip(rows["workload"].astype(str), rows["variant"].astype(str), strict=True))
    wanted = {
        name: max((*YARDSTICKS, baselines.get(name, "")), key=lambda variant: counts[name, variant])
        for name in rows["workload"].astype(str).unique()
    }
    kept = rows[rows["variant"].astype(str) == rows["workload"].astype(str).map(wanted)].copy()
    kept["relative"] = kept["ns"] / kept.groupby(["workload", "variant"], observed=True)["ns"].transform("median")
    return kept.sort_values("seconds")[["workload", "variant", "seconds", "relative"]].reset_index(drop=True)


# -- identical code against itself -------------------------------------------------------------------------------------

KINDS = {"aa": "entered twice", "copy": "identical copy"}


def controls(run: data.Run) -> list[Control]:
    """The controls of a run, what fired first, then the least certain first; open intervals last."""
    return sorted(
        run.noise.controls, key=lambda control: (not control.fired, math.isinf(smallest(control)), -smallest(control))
    )


def smallest(control: Control) -> float:
    """The smallest difference that it could have shown, as a part of 1: half the width of its interval."""
    return math.expm1((control.high - control.low) / 2)


def as_claim(run: data.Run) -> data.Claim:
    """The bounded controls of a run as the rows of a forest plot, under a heading for each kind."""
    rows = tuple(
        data.unasked(
            control.interval,
            workload=control.workload,
            baseline=KINDS.get(control.kind, control.kind),
            named=run.named(control.workload),
            verdict=Word.FIRED if control.fired else Word.PASSED,
            notes=(f"{control.variant}: a difference of {100 * smallest(control):.2g} % could have been seen",),
        )
        for control in controls(run)
        if math.isfinite(smallest(control))
    )
    return data.figure("Controls", run.alpha, rows, claimed="no difference")


def smallest_by_workload(controls: Sequence[Control]) -> dict[str, float]:
    """By workload the smallest difference that its least certain control could have shown."""
    sizes: dict[str, float] = {}
    for control in controls:
        sizes[control.workload] = max(smallest(control), sizes.get(control.workload, 0.0))
    return sizes


def could_see(claims: Iterable[data.Claim]) -> str:
    """How small a difference the comparisons of these claims could see; nothing without an interval."""
    widths = _half_widths(claims)
    if not widths:
        return ""
    widest = f"within ±{_percent(max(widths))}. Where an interval cannot tell, the verdict is inconclusive."
    if len(widths) == 1:
        return f"The comparison is known {widest}"
    return f"Half of {len(widths)} comparisons are known within ±{_percent(np.median(widths))}, all {widest}"


def checks_saw(controls: Sequence[Control]) -> str:
    """How small a difference the controls could have shown; nothing without any."""
    sentences = []
    if known := [size for size in smallest_by_workload(controls).values() if math.isfinite(size)]:
        middle, worst = _percent(np.median(known)), _percent(max(known))
        sentences.append(f"The checks could see ±{middle} on the middle workload, ±{worst} on the worst.")
    if few := sum(math.isinf(smallest(control)) for control in controls):
        sentences.append(f"{checks_text(few)} had too few rounds to say.")
    return " ".join(sentences)


def _half_widths(claims: Iterable[data.Claim]) -> list[float]:
    """Of each comparison of times half its narrowest interval; those without one are left out."""
    widths: dict[tuple[str, ...], float] = {}
    for effect in (effect for claim in claims for effect in claim.effects if not effect.unit):
        if effect.lower and effect.upper:
            key = effect.workload, effect.variant, effect.baseline, effect.metric
            width = math.expm1(math.log(effect.upper / effect.lower) / 2)
            widths[key] = min(width, widths.get(key, math.inf))
    return list(widths.values())


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
