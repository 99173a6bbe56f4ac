"""Architecture or operations? A full factorial: every combination of old and new levels, measured in the same rounds.

    samples --whole_processes--> logs [processes, cells] --contrasts--> a log ratio a process --judge_effect--> Effect

A ladder of presets credits each thing with what it does beside one setting of the others. A full factorial has every
setting: each effect is a contrast of half the cells against the other half, so every cell's time serves every effect
(Fisher 1935; Box, Hunter and Hunter, "Statistics for Experimenters", chapter 5), and whether effects add up is seen and
not assumed.

Every round has all cells in random order. The number of a process for an effect is the mean over cells of the
sign-coded speed-up: minus the median, over its sub-rounds, of the log time of a call. Common drift cancels, because the
signs sum to 0. The series has an interval as any other comparison. The estimates are those of least
squares on the log times (a test compares them with statsmodels); the intervals are not, because least squares takes
residuals that share a process for independent, and allows one look only.

Scale. An effect is the log of t_old / t_new: above 1 the new level is faster, on the geometric mean over the settings
of the other factors. An interaction of two factors is half the difference between the effects of one with the other new
and old: above 1 both new levels together gain more than the sum of each alone.

The split. With L the log speed-up of a cell over the all-old one, the total is L(new, new), for architecture and
operations new. Changing architecture first gains L(new, old), changing it last L(new, new) - L(old, new); the mean of
both (Shapley's value of a game of two) favours neither and adds up to the total. In effects it is the sum of those with
an odd number of architecture factors and an even number of operations factors, and the other way round for operations.
Only the four corners enter, so it has twice the standard error of an effect.

The dummy. A random half of the cells against the rest, drawn again for every process, has no effect whatever the cells
do; times enter as deviations from their cell's mean, else real effects would make it noisy. It is a control of this
analysis; `@aa` is the control of the measuring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from llama_workbench import variants

from ...evidence.effect import INVALID_SHARE_LIMIT, Further, judge_effect
from ...evidence.evidence import Evidence
from ...metrics.base import Judged, Metric
from ...spec.comparison import Comparison
from ...spec.experiments import Contrast
from ...spec.hypotheses import Margin, Names, ValueHypothesis
from ...spec.regions import Region
from ...spec.words import ARCHITECTURE, OPERATIONS, TOTAL, Word, due_to
from ...stats.confidence import LookPlan, running_interval
from ...stats.samples import Differences, WholeProcesses, whole_processes
from ...store.verdict_schema import Effect

DUMMY = "dummy"


@dataclass(frozen=True)
class Factor:
    """One axis of a grid with its two levels; `kind` is the side of the dispute that it belongs to."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    old: str
    new: str
    kind: Literal["architecture", "operations"]


@dataclass(frozen=True)
class Grid:
    """Every combination of the factors' levels; a cell is the variant called NAME_level_level_..."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    factors: Annotated[tuple[Factor, ...], Field(min_length=1, max_length=6)]

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


GRID = Grid(variants.GRID_NAME, tuple(Factor(*axis) for axis in variants.GRID_AXES))
"""The one whose cells ship, for claims that do not name their own."""


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


MARGIN_PERCENT = 1.0
"""An effect within this much either way counts as none, where a claim says no margin."""


def dummy_series(times: WholeProcesses, seed: int) -> NDArray[np.float64]:
    """The contrast of a random half of the cells with the rest, one value a process: its truth is 0.

    The draw depends on the run's seed and the process with its first round alone. Given the times, every value is as
    likely as its negative and independent of the others, whatever the deviations from the cells' means are: symmetric
    about 0.
    """
    cells = times.logs.shape[1]
    signs = np.repeat([-1.0, 1.0], cells // 2)
    drawn = [np.random.default_rng([seed, process, number]).permutation(signs) for process, number in times.starts]
    deviations = times.logs - times.logs.mean(axis=0) if len(times.logs) else times.logs
    return np.asarray((np.reshape(drawn, times.logs.shape) * deviations).sum(axis=1) / (cells / 2), dtype=np.float64)


@dataclass(frozen=True)
class Attribution:
    """What the grid says on one workload.

    effects: by name: architecture, operations and total (about their product), main effects, interactions by order, and
    the dummy. Ratios are t_old / t_new: above 1 the new one is faster. Verdicts: faster, slower, same (within the
    margin either way), inconclusive or not evidence; of the dummy passed or fired.
    times: of the cells, process by process.
    share: architecture's part of the total, a fraction with its interval (outside 0 to 1 where one side gains and the
    other loses); None where the total may be 0 or a loss. answer: which side gains more than the margin: architecture,
    operations, both, neither, inconclusive or not evidence.
    """

    times: WholeProcesses
    effects: Mapping[str, Effect]
    share: tuple[float, float, float] | None
    answer: str
    reason: str


def refusal(evidence: Evidence, workload: str, grid: Grid = GRID) -> str | None:
    """Why the grid on this workload is not evidence; None where it is.

    All cells must have been measured and none excluded: the effects of an incomplete factorial are mixed up with each
    other. Cells that differ in architecture alone must run the same operations, or what they differ by would be booked
    on the wrong side.
    """
    cells = grid.cells()
    measured = evidence.measured.get(workload, ())
    if missing := [name for name in cells if name not in measured]:
        named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        return f"this run has {len(cells) - len(missing)} of the grid's {len(cells)} cells; missing: {named}"
    if excluded := [name for name in cells if (workload, name) in evidence.unusable]:
        reason = evidence.unusable[workload, excluded[0]]
        others = f" (and {len(excluded) - 1} more)" if len(excluded) > 1 else ""
        return f"a grid needs all its cells; {excluded[0]} was excluded{others}: {reason}"
    operations = [index for index, factor in enumerate(grid.factors) if factor.kind == "operations"]
    first: dict[tuple[float, ...], str] = {}
    for name, signs in zip(cells, grid.signs(), strict=True):
        reference = first.setdefault(tuple(signs[operations]), name)
        if name != reference and (
            difference := evidence.not_evidence(Comparison(workload, name, reference), ARCHITECTURE)
        ):
            return f"{name} against {reference}: {difference}"
    return None


def attribute(
    evidence: Evidence, workload: str, grid: Grid = GRID, *, alpha: float, within_percent: float = MARGIN_PERCENT
) -> Attribution:
    """All effects of the grid, and how the total speed-up divides between architecture and operations.

    within_percent: either way counts as no effect. alpha: of each interval. The answer says something of two effects,
    architecture and operations, so that it is wrong with twice that probability at most. The share follows from those
    two.
    """
    cells, weights = grid.cells(), contrasts(grid)
    times, bias = whole_processes(evidence.times(workload, *cells)), evidence.bias(workload)
    clock, refused = evidence.clocks.of(workload, *cells), refusal(evidence, workload, grid)
    plan = evidence.design.plan(workload, alpha)
    dummy = _dummy(dummy_series(times, evidence.seed), workload, clock, plan)
    confounds = ("the dummy factor's interval leaves out 1",) if dummy.verdict == Word.FIRED else ()
    incomplete: tuple[str, ...] = ()
    if times.incomplete:
        processes = times.incomplete + times.invalid + len(times.logs)
        incomplete = (f"{times.incomplete} of {processes} processes lack a cell",)
    effects: dict[str, Effect] = {}
    for name in (ARCHITECTURE, OPERATIONS, TOTAL, *grid.terms()):
        effect = judge_effect(
            _differences(times, weights[name]),
            Region.same_within_percent(within_percent),
            alpha=plan,
            workload=workload,
            variant=f"{name} new",
            baseline=f"{name} old",
            metric=f"{clock} time",
            confounds=confounds,
            not_evidence=refused,
            bias=bias,
            fault_cost_ns=evidence.fault_cost_ns,
            further=Further(evidence.seconds_each(workload, len(times.logs))),
        )
        words = {Word.SUPPORTED: Word.SAME, Word.REFUTED: Word.FASTER if effect.low > 1 else Word.SLOWER}
        verdict, notes = words.get(effect.verdict, effect.verdict), effect.notes + incomplete
        effects[name] = replace(effect, clock=clock, seconds=0.0, verdict=verdict, notes=notes)
    share = None
    if refused is None and not confounds and _trusted(times, weights, plan):
        share = _share(effects[ARCHITECTURE], effects[OPERATIONS], bias)
    answer, reason = _answer(effects, share)
    return Attribution(times, {**effects, DUMMY: dummy}, share, answer, reason)


def _differences(times: WholeProcesses, weights: NDArray[np.float64]) -> Differences:
    """A contrast, a number a process: each side is a mean of cells, whose page faults confound as in any other."""
    old, new = np.maximum(-weights, 0), np.maximum(weights, 0)
    processes = len(times.logs)
    typical = np.median(times.logs, axis=0) if processes else np.full(len(weights), np.nan)
    return Differences(
        values=-times.logs @ weights,
        seconds=times.seconds,
        faults_baseline=float(times.faults @ old),
        faults_variant=float(times.faults @ new),
        invalid_share=times.invalid / (processes + times.invalid) if times.invalid else 0.0,
        call_baseline_ns=math.exp(typical @ old),
        call_variant_ns=math.exp(typical @ new),
    )


def verdict_on(attribution: Attribution, claimed: str) -> Word:
    """The verdict on "the speed-up is due to `claimed`": architecture, operations, both or neither."""
    if attribution.answer in (Word.INCONCLUSIVE, Word.NOT_EVIDENCE):
        return Word(attribution.answer)
    return Word.SUPPORTED if attribution.answer == claimed else Word.REFUTED


def _dummy(series: NDArray[np.float64], workload: str, clock: str, plan: LookPlan) -> Effect:
    interval = running_interval(series, plan)
    fired = interval.unstable or not interval.low <= 0 <= interval.high
    ratio, low, high = (math.exp(end) for end in (interval.centre, interval.low, interval.high))
    return Effect(
        workload=workload, variant=f"{DUMMY} new", baseline=f"{DUMMY} old", metric=f"{clock} time", clock=clock,
        ratio=ratio, low=low, high=high, rounds=interval.n, seconds=0.0, verdict=Word.FIRED if fired else Word.PASSED,
    )  # fmt: skip


def _trusted(times: WholeProcesses, weights_of: Mapping[str, NDArray[np.float64]], plan: LookPlan) -> bool:
    """Whether enough processes were valid, and neither side moved while it was measured."""
    if times.invalid > INVALID_SHARE_LIMIT * (times.invalid + len(times.logs)):
        return False
    sides = [weights_of[name] for name in (ARCHITECTURE, OPERATIONS)]
    return not any(running_interval(-times.logs @ weights, plan).unstable for weights in sides)


def _share(architecture: Effect, operations: Effect, bias: float) -> tuple[float, float, float] | None:
    """Architecture's share of the total with its interval; each side may be off by `bias` (log units) either way.

    a / (a + o) is monotone in a and in o wherever a + o > 0, so over the rectangle of both intervals, which holds the
    truth whenever both do, its extremes lie in corners.
    """
    if min(architecture.low, operations.low) <= 0 or math.isinf(max(architecture.high, operations.high)):
        return None
    ours, theirs = (
        [math.log(side.ratio), math.log(side.low) - bias, math.log(side.high) + bias]
        for side in (architecture, operations)
    )
    if ours[1] + theirs[1] <= 1e-9:  # the total may be 0 but for rounding
        return None
    corners = [a / (a + o) for a in ours[1:] for o in theirs[1:]]
    return ours[0] / (ours[0] + theirs[0]), min(corners), max(corners)


def _answer(effects: Mapping[str, Effect], share: tuple[float, float, float] | None) -> tuple[str, str]:
    """Which side gains, and why that is said. A side that loses does not bring a speed-up; the reason shows it."""
    sides = {name: effects[name] for name in (ARCHITECTURE, OPERATIONS)}
    if any(side.verdict == Word.NOT_EVIDENCE for side in sides.values()):
        return Word.NOT_EVIDENCE, sides[ARCHITECTURE].reason
    parts = [f"{_described(name, side)} ({side.verdict})" for name, side in sides.items()]
    if share is not None:
        parts.append("architecture's share of the total {:.0%} [{:.0%}, {:.0%}]".format(*share))
    mixed = [(name, one) for name, one in effects.items() if ":" in name and one.verdict in (Word.FASTER, Word.SLOWER)]
    if mixed:
        parts.append("effects do not just add up: " + ", ".join(_described(*each) for each in mixed))
    if open_ := [(name, side) for name, side in sides.items() if side.verdict == Word.INCONCLUSIVE]:
        parts += [f"{name}: {side.reason}" for name, side in open_]
        return Word.INCONCLUSIVE, "; ".join(parts)
    return due_to(name for name, side in sides.items() if side.verdict == Word.FASTER), "; ".join(parts)


def _described(name: str, effect: Effect) -> str:
    if math.isinf(effect.high) or not effect.low > 0:
        return f"{name}: no interval yet"
    return f"{name} {effect.ratio:.4g}× [{effect.low:.4g}, {effect.high:.4g}]"


class AttributionHypothesis(ValueHypothesis):
    """What the speed-up between the corners of the grid is due to, on each of `workloads`."""

    metric: Literal["attribution"]
    workloads: Names
    quantity: Annotated[
        Literal["architecture", "operations", "both", "neither"],
        Field(description='"architecture", "operations", "both" or "neither"'),
    ]
    grid: Annotated[
        Grid,
        Field(
            description='a table: name, and factors, a list of { name, old, new, kind } with kind "architecture" or '
            '"operations"'
        ),
    ] = GRID
    margin: Annotated[
        Margin | None,
        Field(description='the difference that matters, { percent = 5, document = "...", section = "..." }'),
    ] = None

    @property
    def within_percent(self) -> float:
        """An effect within so much either way counts as none."""
        return self.margin.percent if self.margin else MARGIN_PERCENT

    @property
    def unit(self) -> str:
        """The answer is a word."""
        return self.quantity

    def describe(self) -> str:
        return f"the speed-up is due to {self.quantity}"

    @property
    def due_to(self) -> str:
        return self.quantity

    def selected(self, variants: Sequence[str], workloads: Sequence[str], *, anywhere: bool) -> Self | None:
        if variants and not {*self.grid.cells()} <= {*variants}:
            return None
        return super().selected(variants, workloads, anywhere=anywhere)

    def contrasts(self) -> tuple[Contrast, ...]:
        weights, cells, same = contrasts(self.grid), self.grid.cells(), Region.same_within_percent(self.within_percent)
        return tuple(Contrast(name, cells, tuple(weights[name]), same) for name in (ARCHITECTURE, OPERATIONS))


class AttributionMetric(Metric[AttributionHypothesis]):
    """Computed from the rounds of a grid; there is no pass."""

    names = ("attribution",)
    about = "What a speed-up is due to: all combinations of the factors, in the same rounds."
    page = "attribution"
    inside = "nothing"
    intervals_at_once = 2
    hypothesis = AttributionHypothesis

    def judge(self, hypothesis: AttributionHypothesis, evidence: Evidence, *, alpha: float) -> Judged:
        """One verdict from the answers on all workloads."""
        answers = {
            workload: attribute(
                evidence, workload, hypothesis.grid, alpha=alpha, within_percent=hypothesis.within_percent
            )
            for workload in hypothesis.workloads
            if workload in evidence.measured
        }
        if not answers:
            return Judged(Word.NOT_MEASURABLE, "this run has no grid")
        words = {verdict_on(each, hypothesis.quantity) for each in answers.values()}
        both = Word.DEPENDS if {Word.SUPPORTED, Word.REFUTED} <= words else Word.INCONCLUSIVE
        verdict = words.pop() if len(words) == 1 else both
        reason = "; ".join(f"{workload}: {each.answer} ({each.reason})" for workload, each in answers.items())
        effects = tuple(effect for each in answers.values() for effect in each.effects.values())
        return Judged(verdict, reason, effects, answers=len(answers))


METRIC = AttributionMetric()
