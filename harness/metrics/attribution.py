"""Architecture or operations? A full factorial: every combination of old and new levels, measured in the same rounds.

    samples --grid_times--> log times [rounds, cells] --contrasts--> one log ratio a round --judge--> FactorEffect

A ladder of presets that changes one thing a step gives each thing credit for what it does beside one setting of the
others. A full factorial has every setting: with two levels a factor, each effect is a contrast over *all* cells, half
of them against the other half, so every cell's time serves every effect (Fisher 1935; Box, Hunter and Hunter,
"Statistics for Experimenters", chapter 5), and whether effects add up is seen and not assumed.

Every round has all cells in random order. Its number for an effect is the mean over cells of the sign-coded speed-up,
where a cell's speed-up is minus the median, over the round's sub-rounds, of the log time of a call. Common drift
cancels in it, because the signs of a contrast sum to nil; a sample hit by an outlier cancels in its own cell's median.
The series goes through the same confidence sequence as any other comparison. The estimates are those of ordinary least
squares on the log times (a test holds it against statsmodels); the intervals are not, because least squares takes
residuals for independent that share a round, and allows one look only.

Scale. An effect is the log of a ratio t_old / t_new: above 1 the new level is faster, on the geometric mean over the
settings of the other factors. An interaction of two factors is half the difference between the effects of the one with
the other new and old (the usual scale, so that all effects have the same standard error): above 1 both new levels
together gain more than each alone would have it.

The split. With L the log speed-up of a cell over the all-old one, the total is L(new, new), for architecture and
operations new. Changing architecture first gains L(new, old), changing it last L(new, new) - L(old, new); where
operations change what architecture gains the two differ, and the mean of both (Shapley's value of a game of two)
favours neither and adds up to the total. In effects it is the sum of those with an odd number of architecture factors
and an even number of operations factors, and the other way round for operations. Only the four corners enter, so it has
twice the standard error of an effect.

The dummy. A random half of the cells against the rest, drawn anew for every round, has no effect whatever the cells do;
times enter as deviations from their cell's mean, else real effects would make it noisy. As the draw is made after
measuring, it is a control of this analysis under this run's own noise, and not of the measuring: that is what `@aa` is
for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ..evidence.judge import INVALID_SHARE_LIMIT, Clock, Differences, Effect, Evidence, decided, judge_effect
from ..spec.comparison import Comparison
from ..spec.regions import Region
from ..stats.confidence import Method, running_interval

MARGIN_PERCENT = 1.0
"""An effect within this much either way counts as none."""

ARCHITECTURE, OPERATIONS, TOTAL = "architecture", "operations", "total"
"""The two sides of the split, and their sum: from the all-old corner to the all-new one."""

DUMMY = "dummy"

Kind = Literal["architecture", "operations"]


@dataclass(frozen=True)
class Factor:
    """One axis of a grid with its two levels; `kind` is the side of the dispute that it belongs to."""

    name: str
    old: str
    new: str
    kind: Kind

    def change(self) -> str:
        """The step in words: "modular → single_file"."""
        return f"{self.old} → {self.new}"


@dataclass(frozen=True)
class Grid:
    """Every combination of the factors' levels; a cell is the variant called NAME_level_level_..."""

    name: str
    factors: tuple[Factor, ...]

    def cells(self) -> tuple[str, ...]:
        """Names of the variants, all-old first, all-new last, the last factor changing fastest."""
        return tuple("_".join((self.name, *levels)) for levels in product(*((f.old, f.new) for f in self.factors)))

    def signs(self) -> NDArray[np.float64]:
        """[cells, factors]: -1 where the factor is old, +1 where it is new."""
        return np.array(list(product((-1.0, 1.0), repeat=len(self.factors))))

    def terms(self) -> tuple[str, ...]:
        """Names of all effects: the factors', then "layout:cache" and so on by order."""
        names = [factor.name for factor in self.factors]
        return tuple(":".join(term) for order in range(1, len(names) + 1) for term in combinations(names, order))


GRID = Grid(
    "grid",
    (
        Factor("layout", "modular", "single_file", "architecture"),
        Factor("cache", "split", "unified", "architecture"),
        Factor("mask", "fresh", "per_model", "operations"),
        Factor("ops", "composite", "fused", "operations"),
    ),
)
"""The dispute's own: file layout and cache ownership against mask policy and fused operations."""

GRIDS: Mapping[str, Grid] = {GRID.name: GRID}
"""The grids that a claim may name."""


def needed_variants(grid: Grid = GRID) -> tuple[str, ...]:
    """Variants that must be measured together on each workload; the first one is the natural baseline."""
    return grid.cells()


def effect_count(grid: Grid = GRID) -> int:
    """Number of intervals that a grid gives on one workload: what it adds to the divisor of a report's alpha.

    All effects, architecture, operations and the total, and the dummy.
    """
    return len(grid.terms()) + 4


def contrasts(grid: Grid = GRID) -> dict[str, NDArray[np.float64]]:
    """Name → weights over `grid.cells()` of the log speed-ups, for every effect and for the split.

    The positive weights of each sum to 1, the negative ones to -1 (all are 0 for a side that has no factors).
    """
    signs = grid.signs()
    place = {factor.name: index for index, factor in enumerate(grid.factors)}
    kinds = {factor.name: factor.kind for factor in grid.factors}
    weights: dict[str, NDArray[np.float64]] = {}
    split = {ARCHITECTURE: np.zeros(len(signs)), OPERATIONS: np.zeros(len(signs))}
    for term in grid.terms():
        names = term.split(":")
        weights[term] = signs[:, [place[name] for name in names]].prod(axis=1) / (len(signs) / 2)
        odd = [kind for kind in split if sum(kinds[name] == kind for name in names) % 2]
        if len(odd) == 1:
            split[odd[0]] += weights[term]
    return {**weights, **split, TOTAL: split[ARCHITECTURE] + split[OPERATIONS]}


def canonical(name: str, grid: Grid = GRID) -> str:
    """The name of an effect as `contrasts` has it: "cache:layout" is "layout:cache".

    Raises ValueError that lists the names there are.
    """
    asked = name.split(":")
    term = ":".join(factor.name for factor in grid.factors if factor.name in asked)
    if term and sorted(asked) == sorted(term.split(":")):
        return term
    if name in (ARCHITECTURE, OPERATIONS, TOTAL):
        return name
    factors = ", ".join(factor.name for factor in grid.factors)
    raise ValueError(
        f'factor = "{name}": grid "{grid.name}" has {factors}, interactions of them such as '
        f'"{":".join(f.name for f in grid.factors[:2])}", and {ARCHITECTURE}, {OPERATIONS}, {TOTAL}'
    )


# -- from samples to log times -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GridTimes:
    """Whole rounds of a grid on one workload, in order of (process, round).

    logs: [rounds, cells], median over the round's sub-rounds of the log time of a call in ns. rounds: (process, round)
    of each. faults: mean over rounds of the median page faults a call, by cell. incomplete: rounds that lack a cell.
    invalid: rounds left out because a time was not positive. seconds: wall time of all samples behind `logs`.
    """

    logs: NDArray[np.float64]
    rounds: tuple[tuple[int, int], ...]
    faults: NDArray[np.float64]
    incomplete: int
    invalid: int
    seconds: float


def grid_times(samples: pd.DataFrame, grid: Grid = GRID, *, workload: str, clock: Clock) -> GridTimes:
    """Take the whole rounds of a grid from samples, which have the columns of samples.parquet, in any order.

    A round in which some cell has no sample is left out whole: without it the signs would no longer sum to nil, and the
    round's own speed would enter. Of a round only the sub-rounds with all cells count. Raises ValueError where a
    cell occurs twice in one sub-round.
    """
    cells = grid.cells()
    key = ["process", "round", "sub_round"]
    here = samples[(samples["workload"] == workload) & samples["variant"].isin(cells)]
    if here.duplicated([*key, "variant"]).any():
        raise ValueError(f"{workload}: a cell of the grid has duplicate samples in one sub-round")
    sub_rounds = here[key].drop_duplicates().sort_values(key, ignore_index=True)
    row = here.groupby(key, sort=True).ngroup().to_numpy()
    column = here["variant"].astype(str).map({name: index for index, name in enumerate(cells)}).to_numpy(dtype=int)

    def by_cell(name: str) -> NDArray[np.float64]:
        table = np.full((len(sub_rounds), len(cells)), np.nan)
        table[row, column] = here[name]
        return table

    times, repeats = by_cell(f"{clock}_ns"), by_cell("repeats")
    whole: NDArray[np.bool_] = np.all(~np.isnan(times), axis=1)
    usable: NDArray[np.bool_] = np.all((times > 0) & (repeats > 0), axis=1)
    rounds = sub_rounds.loc[whole, ["process", "round"]].assign(valid=usable[whole])
    valid = rounds.groupby(["process", "round"])["valid"].transform("all").to_numpy(dtype=bool)
    kept = np.flatnonzero(whole)[valid]
    by_round = [rounds.loc[valid, "process"].to_numpy(), rounds.loc[valid, "round"].to_numpy()]
    logs = pd.DataFrame(np.log(times[kept] / repeats[kept])).groupby(by_round).median()
    faults = pd.DataFrame(by_cell("faults")[kept] / repeats[kept]).groupby(by_round).median()
    complete = len(rounds.drop_duplicates(["process", "round"]))
    return GridTimes(
        logs=logs.to_numpy(dtype=np.float64).reshape(-1, len(cells)),
        rounds=tuple((int(process), int(number)) for process, number in logs.index),
        faults=faults.to_numpy(dtype=np.float64).mean(axis=0) if len(faults) else np.zeros(len(cells)),
        incomplete=len(sub_rounds.drop_duplicates(["process", "round"])) - complete,
        invalid=complete - len(logs),
        seconds=float(by_cell("wall_ns")[kept].sum()) / 1e9,
    )


def round_logs(samples: Iterable[Sequence[Any]], grid: Grid = GRID, *, clock: Clock) -> NDArray[np.float64] | None:
    """The same for one round as the measuring loop has it: [cells], or None where the round is not whole or not valid.

    Each sample is a row of `store.RoundRecord`.
    """
    cells = {name: index for index, name in enumerate(grid.cells())}
    place = {"cpu": 0, "wall": 1, "device": 5}[clock]
    rows: dict[int, dict[int, float]] = {}
    for variant, sub_round, _, _, repeats, *found_ns in samples:
        if variant in cells:
            time_ns = found_ns[place]
            usable = time_ns > 0 and repeats > 0
            rows.setdefault(sub_round, {})[cells[variant]] = math.log(time_ns / repeats) if usable else math.nan
    whole = [[row[index] for index in range(len(cells))] for row in rows.values() if len(row) == len(cells)]
    logs = np.median(np.array(whole), axis=0) if whole else np.full(len(cells), np.nan)
    return None if np.isnan(logs).any() else logs


def dummy_series(times: GridTimes, seed: int) -> NDArray[np.float64]:
    """The contrast of a random half of the cells with the rest, one value a round: its truth is 0.

    The draw depends on the run's seed and the round alone. Given the times, every value is as likely as its negative
    and independent of the others, whatever the deviations from the cells' means are: symmetric about 0.
    """
    cells = times.logs.shape[1]
    signs = np.repeat([-1.0, 1.0], cells // 2)
    drawn = [np.random.default_rng([seed, process, number]).permutation(signs) for process, number in times.rounds]
    deviations = times.logs - times.logs.mean(axis=0) if len(times.logs) else times.logs
    return np.asarray((np.reshape(drawn, times.logs.shape) * deviations).sum(axis=1) / (cells / 2), dtype=np.float64)


# -- when to stop ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenEffect:
    """An effect that the rounds so far do not settle, with its series and what it is asked against."""

    name: str
    values: NDArray[np.float64]
    region: Region


def open_effects(
    logs: ArrayLike, *, alpha: float, grid: Grid = GRID, wanted: Iterable[str] = (), method: Method = "both"
) -> tuple[OpenEffect, ...]:
    """Which effects still need rounds: asked after each round, empty once the loop may stop.

    `logs` are the rounds of `round_logs` so far, [rounds, cells]; `alpha` is what each effect is judged at. `wanted`
    names the effects to wait for; without any, all. By the sequence and the margin that `attribute` judges by.
    """
    times = np.reshape(np.asarray(logs, dtype=np.float64), (-1, len(grid.cells())))
    weights = contrasts(grid)
    region = Region.same_within_percent(MARGIN_PERCENT)
    open_ = []
    for name in dict.fromkeys(canonical(name, grid) for name in wanted or weights):
        values = -times @ weights[name]
        if not values.size or not decided(running_interval(values, alpha, method), region):
            open_.append(OpenEffect(name, values, region))
    return tuple(open_)


# -- effects and the split ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FactorEffect:
    """What one factor, interaction or side of the split does. Ratios are t_old / t_new: above 1 the new one is faster.

    levels: the step of each factor that it is about. verdict: faster, slower, same (within 1 % either way),
    inconclusive or not evidence; for the dummy passed or fired. warnings: the reason for the verdict first.
    """

    name: str
    levels: tuple[str, ...]
    ratio: float
    low: float
    high: float
    rounds: int
    verdict: str
    warnings: tuple[str, ...] = ()

    def describe(self) -> str:
        """Name, ratio and interval in words."""
        if math.isinf(self.high) or not self.low > 0:
            return f"{self.name}: no interval yet"
        return f"{self.name} {self.ratio:.4g}× [{self.low:.4g}, {self.high:.4g}]"

    def to_json(self) -> dict[str, Any]:
        """For verdicts.json; bounds that are not there yet become null."""
        numbers = {"ratio": self.ratio, "low": self.low, "high": self.high}
        return {
            "name": self.name,
            "levels": list(self.levels),
            **{key: value if math.isfinite(value) and value > 0 else None for key, value in numbers.items()},
            "rounds": self.rounds,
            "verdict": self.verdict,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class Attribution:
    """What a grid says on one workload.

    effects: main effects first, then interactions by order. architecture + operations = total, as logs. share: of the
    total that architecture has, as a fraction with an interval (it may lie outside 0 to 1, where one side gains and
    the other loses); None where the total may be nil or a loss, for then there is nothing to share. answer:
    architecture, operations, both, neither (which of them gains more than 1 %), inconclusive, or not evidence. alpha:
    of each interval.
    """

    workload: str
    grid: str
    effects: tuple[FactorEffect, ...]
    architecture: FactorEffect
    operations: FactorEffect
    total: FactorEffect
    dummy: FactorEffect
    share: tuple[float, float, float] | None
    answer: str
    reason: str
    alpha: float

    def to_json(self) -> dict[str, Any]:
        """For verdicts.json. "share" is [value, low, high] or null."""
        return {
            "workload": self.workload,
            "grid": self.grid,
            "effects": [effect.to_json() for effect in self.effects],
            ARCHITECTURE: self.architecture.to_json(),
            OPERATIONS: self.operations.to_json(),
            TOTAL: self.total.to_json(),
            DUMMY: self.dummy.to_json(),
            "share": list(self.share) if self.share else None,
            "answer": self.answer,
            "reason": self.reason,
            "alpha": self.alpha,
        }


@dataclass(frozen=True)
class MeasuredGrid:
    """A grid's times on one workload, and what the run says about trusting them.

    not_evidence: why they say nothing about the dispute (a cell that fell out, op traces that differ), or None.
    """

    grid: Grid
    workload: str
    clock: Clock
    times: GridTimes
    seed: int
    not_evidence: str | None
    bias: float
    fault_cost_ns: float


def factor_of(variant: str, baseline: str) -> str:
    """The factor, interaction or side whose effect is reported as "NAME new" against "NAME old"; "" for other sides."""
    name = variant.removesuffix(" new")
    return name if (variant, baseline) == (f"{name} new", f"{name} old") else ""


def refusal(evidence: Evidence, workload: str, grid: Grid = GRID) -> str | None:
    """Why a grid on this workload is not evidence; None where it is.

    All cells must have been measured and none may have fallen out: the effects of an incomplete factorial are mixed up
    with each other. Cells that differ in architecture alone must run the same operations, or what they differ by
    would be booked on the wrong side.
    """
    cells = grid.cells()
    measured = evidence.measured.get(workload, ())
    if missing := [name for name in cells if name not in measured]:
        return f"this run has {len(cells) - len(missing)} of the grid's {len(cells)} cells; missing: {_few(missing)}"
    if fallen := [name for name in cells if (workload, name) in evidence.unusable]:
        reason = evidence.unusable[workload, fallen[0]]
        others = f" (and {len(fallen) - 1} more)" if len(fallen) > 1 else ""
        return f"a grid needs all its cells; {fallen[0]} fell out{others}: {reason}"
    operations = [index for index, factor in enumerate(grid.factors) if factor.kind == "operations"]
    first: dict[tuple[float, ...], str] = {}
    for name, signs in zip(cells, grid.signs(), strict=True):
        reference = first.setdefault(tuple(signs[operations]), name)
        if name == reference:
            continue
        if difference := evidence.not_evidence(Comparison(workload, name, reference), ARCHITECTURE):
            return f"{name} against {reference}: {difference}"
    return None


def measured_grid(evidence: Evidence, workload: str, *, seed: int, grid: Grid = GRID) -> MeasuredGrid:
    """Read a grid off a run's evidence (see `judge.evidence_from_manifest`); `seed` is the run's."""
    clock = evidence.clock(workload, *grid.cells())
    return MeasuredGrid(
        grid=grid,
        workload=workload,
        clock=clock,
        times=grid_times(evidence.samples, grid, workload=workload, clock=clock),
        seed=seed,
        not_evidence=refusal(evidence, workload, grid),
        bias=evidence.bias(workload),
        fault_cost_ns=evidence.fault_cost_ns,
    )


def judge_factor(
    measured: MeasuredGrid,
    name: str,
    region: Region,
    *,
    alpha: float,
    confounds: Sequence[str] = (),
    method: Method = "both",
) -> Effect:
    """Judge one effect of a grid against what a claim says of it, like any other comparison.

    name: a factor, an interaction, or architecture, operations or total. Gives supported, refuted, inconclusive or not
    evidence. Page faults and the session's bias stretch the interval as they do there: each side of a contrast is a
    mean of cells, so it is moved by no more than a single variant would be. Raises ValueError for an unknown name.
    """
    grid, times = measured.grid, measured.times
    name = canonical(name, grid)
    weights = contrasts(grid)[name]
    old, new = np.maximum(-weights, 0), np.maximum(weights, 0)
    rounds = len(times.logs)
    typical = np.median(times.logs, axis=0) if rounds else np.full(len(weights), np.nan)
    steps = ", ".join(_levels(grid, name))
    return judge_effect(
        Differences(
            values=-times.logs @ weights,
            seconds=times.seconds,
            faults_baseline=float(times.faults @ old),
            faults_variant=float(times.faults @ new),
            invalid_share=times.invalid / (rounds + times.invalid) if times.invalid else 0.0,
            call_baseline_ns=math.exp(typical @ old),
            call_variant_ns=math.exp(typical @ new),
        ),
        region,
        alpha=alpha,
        workload=measured.workload,
        variant=f"{name} new",
        baseline=f"{name} old ({steps})",
        metric=f"{measured.clock} time",
        confounds=confounds,
        not_evidence=measured.not_evidence,
        bias=measured.bias,
        fault_cost_ns=measured.fault_cost_ns,
        method=method,
    )


def attribute(measured: MeasuredGrid, *, alpha: float, method: Method = "both") -> Attribution:
    """All effects of a grid, and how the total speed-up divides between architecture and operations.

    `alpha` is what each interval is judged at: a report's alpha over the number of its effects, to which every workload
    of a grid adds `effect_count(grid)`. Then all intervals hold at once, and the share needs no alpha of its own: it
    is what the intervals of both sides allow.
    """
    grid, times = measured.grid, measured.times
    dummy = _dummy(measured, alpha, method)
    confounds = ("the dummy factor's interval leaves out 1",) if dummy.verdict == "fired" else ()
    region = Region.same_within_percent(MARGIN_PERCENT)
    incomplete = (
        (f"{times.incomplete} of {times.incomplete + times.invalid + len(times.logs)} rounds lack a cell",)
        if times.incomplete
        else ()
    )

    def found(name: str) -> FactorEffect:
        effect = judge_factor(measured, name, region, alpha=alpha, confounds=confounds, method=method)
        words = {"supported": "same", "refuted": "faster" if effect.low > 1 else "slower"}
        return FactorEffect(
            name=name,
            levels=_levels(grid, name),
            ratio=effect.ratio,
            low=effect.low,
            high=effect.high,
            rounds=effect.rounds,
            verdict=words.get(effect.verdict, effect.verdict),
            warnings=effect.warnings + incomplete,
        )

    effects = tuple(found(name) for name in grid.terms())
    architecture, operations, total = found(ARCHITECTURE), found(OPERATIONS), found(TOTAL)
    share = None
    if (
        measured.not_evidence is None
        and not confounds
        and _trusted(times, (ARCHITECTURE, OPERATIONS), grid, alpha, method)
    ):
        share = _share(architecture, operations, measured.bias)
    answer, reason = _answer(effects, architecture, operations, share)
    return Attribution(
        workload=measured.workload,
        grid=grid.name,
        effects=effects,
        architecture=architecture,
        operations=operations,
        total=total,
        dummy=dummy,
        share=share,
        answer=answer,
        reason=reason,
        alpha=alpha,
    )


def verdict_on(attribution: Attribution, claimed: str) -> str:
    """The verdict on "the speed-up is due to `claimed`" (architecture, operations, both or neither): supported where
    that is the answer, refuted where it is another, and inconclusive or not evidence where there is none."""
    if claimed not in (ARCHITECTURE, OPERATIONS, "both", "neither"):
        raise ValueError(f'"{claimed}": expected {ARCHITECTURE}, {OPERATIONS}, both or neither')
    if attribution.answer in ("inconclusive", "not evidence"):
        return attribution.answer
    return "supported" if attribution.answer == claimed else "refuted"


def _dummy(measured: MeasuredGrid, alpha: float, method: Method) -> FactorEffect:
    interval = running_interval(dummy_series(measured.times, measured.seed), alpha, method)
    fired = interval.unstable or not interval.low <= 0 <= interval.high
    return FactorEffect(
        name=DUMMY,
        levels=("a random half of the cells → the other half",),
        ratio=math.exp(interval.centre),
        low=math.exp(interval.low),
        high=math.exp(interval.high),
        rounds=interval.n,
        verdict="fired" if fired else "passed",
    )


def _trusted(times: GridTimes, names: Sequence[str], grid: Grid, alpha: float, method: Method) -> bool:
    """Whether rounds enough were valid, and none of these effects moved while it was measured."""
    if times.invalid > INVALID_SHARE_LIMIT * (times.invalid + len(times.logs)):
        return False
    weights = contrasts(grid)
    return not any(running_interval(-times.logs @ weights[name], alpha, method).unstable for name in names)


def _share(architecture: FactorEffect, operations: FactorEffect, bias: float) -> tuple[float, float, float] | None:
    """Architecture's share of the total with its interval; each side may be off by `bias` (log units) either way.

    a / (a + o) is monotone in a and in o wherever a + o > 0, so over the rectangle of both intervals its extremes lie
    in corners. The rectangle holds the truth whenever both intervals do, however they depend on each other.
    """
    if not (
        architecture.low * operations.low > math.exp(2 * bias) and math.isfinite(architecture.high * operations.high)
    ):
        return None
    ours, theirs = (
        [math.log(side.ratio), math.log(side.low) - bias, math.log(side.high) + bias]
        for side in (architecture, operations)
    )
    corners = [a / (a + o) for a in ours[1:] for o in theirs[1:]]
    return ours[0] / (ours[0] + theirs[0]), min(corners), max(corners)


def _answer(
    effects: Sequence[FactorEffect],
    architecture: FactorEffect,
    operations: FactorEffect,
    share: tuple[float, float, float] | None,
) -> tuple[str, str]:
    """Which side gains, and why that is said. A side that loses does not bring a speed-up; the reason shows it."""
    sides = (architecture, operations)
    if any(side.verdict == "not evidence" for side in sides):
        return "not evidence", architecture.warnings[0]
    parts = [f"{side.describe()} ({side.verdict})" for side in sides]
    if share is not None:
        parts.append("architecture's share of the total {:.0%} [{:.0%}, {:.0%}]".format(*share))
    mixed = [effect for effect in effects if ":" in effect.name and effect.verdict in ("faster", "slower")]
    if mixed:
        parts.append("effects do not just add up: " + ", ".join(effect.describe() for effect in mixed))
    open_ = [side for side in sides if side.verdict == "inconclusive"]
    if open_:
        parts += [f"{side.name}: {side.warnings[0]}" for side in open_]
        return "inconclusive", "; ".join(parts)
    gaining = [side.name for side in sides if side.verdict == "faster"]
    return "both" if len(gaining) == 2 else gaining[0] if gaining else "neither", "; ".join(parts)


def _levels(grid: Grid, name: str) -> tuple[str, ...]:
    """The steps that an effect is about."""
    names = name.split(":")
    return tuple(f.change() for f in grid.factors if f.name in names or name in (f.kind, TOTAL))


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
