"""From one number a process to an effect: its interval, and what it says of a region.

The method in one paragraph. Each process gives one number, the median over its adjacent pairs of
log t_baseline - log t_variant. `stats.confidence` turns the series into an interval that may be looked at while
measuring goes on. An effect is *supported* when the whole interval lies inside the region that is claimed, *refuted*
when none of it does, and *inconclusive* otherwise; "not significant" is never an answer, and "the same" is a region
like any other. `judge.parts` says at which level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..spec.regions import Region
from ..spec.words import LOOKS, SETTLED, Cause, Word
from ..stats.confidence import (
    Ends,
    Interval,
    Level,
    LookPlan,
    Question,
    first_interval,
    looks,
    looks_reached,
    pseudo_median,
    running_interval,
    values_needed,
)
from ..stats.means import is_dependent
from ..stats.samples import Differences
from ..store.verdict_schema import Effect

# How numbers are written in reasons.


def exp(log_ratio: float) -> float:
    try:
        return math.exp(log_ratio)
    except OverflowError:
        return math.inf


def percent(share: float) -> str:
    """0.0042 as "0.42 %", with two figures that count."""
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"


MOST_TOLD = 1.0
"""The widest interval, as a share of its value, that is told in digits: a wider one says nothing."""


def half_width(share: float) -> str:
    """Half the width of an interval in percent: "±3.1 %", "> ±100 %"."""
    return f"±{percent(share)}" if share <= MOST_TOLD else f"> ±{100 * MOST_TOLD:,.0f} %"


def short_time(seconds: float) -> str:
    """3.1e-6 as "3.1 µs"."""
    size, unit = next((each for each in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= each[0]), (1e-9, "ns"))
    return f"{seconds / size:.3g} {unit}"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def budget(seconds: float) -> int:
    """Seconds that are asked for where these are needed: rounded up to two digits."""
    whole = max(math.ceil(seconds), 1)
    unit = 10 ** max(len(str(whole)) - 2, 0)
    return math.ceil(whole / unit) * unit


UNSTABLE = "unstable: the effect drifted while it was measured"
DEPENDENT = "not independent: successive values are correlated or drift, so the interval is too narrow"
TOO_FEW = "too few rounds for an interval"
"""Reasons for an open effect."""

ALPHA = 0.01
"""Chance that a verdict is wrong."""

INVALID_SHARE_LIMIT = 0.05
"""Share of processes without a valid time above which an effect is confounded."""

FAULT_COST_NS = 4_000.0
"""Upper figure for one minor fault of a 4 KiB page, in CPU time: 2.1-2.7 us measured on a shared two-core VM, about 1
us where the processor is not shared."""

HUGE_FAULT_COST_NS = 300_000.0
"""The same where the kernel backs any memory with 2 MiB pages: clearing one is most of it."""


class Stretch(NamedTuple):
    """By how much (log units) the true effect may lie below and above an interval, for what disturbed it."""

    low: float = 0.0
    high: float = 0.0


NO_STRETCH = Stretch()


def decided(interval: Interval, region: Region, stretch: Stretch = NO_STRETCH) -> bool:
    """True once the interval answers the claim, either way, and the answer survives the stretch: the measuring loop may
    stop."""
    if interval.unstable:
        return False
    answer = _settled(interval.low, interval.high, region)
    return answer is not None and answer == _settled(interval.low - stretch.low, interval.high + stretch.high, region)


def rounds_needed(values: ArrayLike, region: Region, *, alpha: Level, stretch: Stretch = NO_STRETCH) -> float:
    """Number of values, those of a planned look, after which the stretched interval will be clear of the region's
    nearest boundary; as many as there are if it is.

    The half width shrinks about as 1/sqrt(values). Where there is an interval it says how wide it is; before, the
    standard deviation of the values does. Infinite where fewer than two give no spread, where the effect lies
    on a boundary or no further from it than the stretch, and where the looks have no common point: no later one mends
    that.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.size < 2:
        return math.inf
    interval = running_interval(series, alpha)
    if interval.unstable:
        return math.inf
    if decided(interval, region, stretch):
        return series.size
    centre = pseudo_median(series)
    distance = min(
        (max(boundary - centre - stretch.high, centre - boundary - stretch.low) for boundary in region.boundaries),
        default=math.inf,
    )
    reached = looks_reached(series.size, alpha)
    if reached and not reached[-1].least:
        spread = (interval.high - interval.low) / 2 / reached[-1].half_width(1.0)
    else:
        spread = float(series.std(ddof=1))
    for look in takewhile(lambda look: look.rounds <= series.size * 1e6, looks(alpha)):
        if look.rounds > series.size and look.half_width(spread) <= distance:
            return look.rounds
    return math.inf


Asked = tuple[Region, Level]
"""What is asked about, and at what its interval is looked at."""


class Further(NamedTuple):
    """What more measuring takes, in seconds of the clock, and may bring. each_value: of a further value; NaN where
    nobody knows. first, all_first: of the first interval, and of those of all effects of the run, as estimated before
    any round; 0 where nobody did. or_else: what else would settle the effect."""

    each_value: float = math.nan
    first: float = 0.0
    all_first: float = 0.0
    or_else: Sequence[Asked] = ()


NOTHING_KNOWN = Further()


def values_more(values: ArrayLike, asked: Sequence[Asked], *, stretch: Stretch = NO_STRETCH) -> float:
    """Further values that in nine of ten cases answer one of these, so that it survives the stretch; before the first
    interval those until then. Infinite where no number can be promised: the effect lies at a limit."""
    series = np.asarray(values, dtype=np.float64)
    if (missing := first_interval(asked[0][1]) - series.size) > 0:
        return float(missing)
    return values_needed(series, [Question(level, _answers(region, stretch)) for region, level in asked]) - series.size


def _answers(region: Region, stretch: Stretch) -> Callable[[Ends, Ends], NDArray[np.bool_]]:
    def answers(low: Ends, high: Ends) -> NDArray[np.bool_]:
        inside = (region.low <= low - stretch.low) & (high + stretch.high <= region.high)
        outside = (high + stretch.high < region.low) | (region.high < low - stretch.low)
        return inside if region.only_inside else inside | outside

    return answers


def judge_effect(
    measured: Differences,
    region: Region,
    *,
    alpha: Level,
    workload: str,
    variant: str,
    baseline: str,
    metric: str,
    confounds: Sequence[str] = (),
    not_evidence: str | None = None,
    bias: float = 0.0,
    fault_cost_ns: float = FAULT_COST_NS,
    further: Further = NOTHING_KNOWN,
) -> Effect:
    """Judge one comparison. `confounds`: why no number here can be trusted. `not_evidence`: why the comparison says
    nothing about the claim, however well it was measured (gates, traces, an excluded variant). Two disturbances have a
    known size: the interval is stretched by the most that they can have done, and the effect is confounded if its
    verdict does not survive that. Page faults: without them the side that has more would take at most (difference) *
    `fault_cost_ns` less. `bias` (log units): what a control that fired shows; stretched both ways. Where processes
    depend on each other they settle only what each of them says by itself.
    """
    plan, interval = LookPlan.at(alpha), running_interval(measured.values, alpha)
    effect = Effect(
        workload=workload, variant=variant, baseline=baseline, metric=metric, ratio=exp(interval.centre),
        low=exp(interval.low), high=exp(interval.high), rounds=interval.n, seconds=measured.seconds,
        verdict=Word.INCONCLUSIVE, horizon=plan.horizon, one_sided=plan.one_sided, early=plan.early,
    )  # fmt: skip
    faults, dependent = fault_stretch(measured, fault_cost_ns), is_dependent(measured.values)
    notes = [DEPENDENT] * dependent
    if max(faults) and abs(measured.faults_baseline - measured.faults_variant) > 1:
        sides = f"{measured.faults_baseline:.1f} in {baseline}, {measured.faults_variant:.1f} in {variant}"
        most = percent(-math.expm1(-max(faults)))
        notes.insert(0, f"page faults a call: {sides} (at most {most} of the time)")

    def ends(verdict: Word, cause: Cause = Cause.NONE, *reasons: str) -> Effect:
        reason, *others = reasons or ("",)
        beside = tuple(note for note in (*others, *notes) if note != reason)
        return replace(effect, verdict=verdict, cause=cause, reason=reason, notes=beside)

    if not_evidence is not None:
        return ends(Word.NOT_EVIDENCE, Cause.EXCLUDED, not_evidence)
    if not interval.n and further.first and not measured.invalid_share:
        effect = replace(effect, seconds_more=further.first)
        more = f"--budget {budget(further.all_first)} measures it too"
        return ends(Word.INCONCLUSIVE, Cause.NO_ROUNDS, f"no rounds were measured: no time was left; {more}")
    if doubt := _doubt(measured, interval, confounds):
        return ends(Word.INCONCLUSIVE, *doubt)
    # Of a series that depends on the time nobody can say what more of it would bring.
    if not decided(interval, region, faults) and not dependent:
        stretch = Stretch(faults.low + bias, faults.high + bias)
        left = values_more(measured.values, [(region, plan), *further.or_else], stretch=stretch)
        effect = replace(effect, seconds_more=left * further.each_value)
    verdict = _settled(interval.low, interval.high, region)
    alike = dependent and _settled(float(np.min(measured.values)), float(np.max(measured.values)), region) == verdict
    if why := _why_open(interval, region, faults, bias, dependent and not alike):
        return ends(Word.INCONCLUSIVE, *why)
    return ends(verdict or Word.INCONCLUSIVE)


Why = tuple[Cause, *tuple[str, ...]]
"""A cause, and its reasons."""


def _doubt(measured: Differences, interval: Interval, confounds: Sequence[str]) -> Why | None:
    """Why the interval says nothing at all, whatever it is."""
    if measured.invalid_share > INVALID_SHARE_LIMIT:
        return Cause.CONFOUNDED, f"confounded: {percent(measured.invalid_share)} of rounds without a valid time"
    if interval.n == 0:
        return Cause.NO_ROUNDS, "no rounds were measured"
    if confounds:
        return Cause.CONFOUNDED, *(f"confounded: {reason}" for reason in confounds)
    return (Cause.UNSTABLE, UNSTABLE) if interval.unstable else None


def _settled(low: float, high: float, region: Region) -> Word | None:
    if region.contains(low, high):
        return Word.SUPPORTED
    return Word.REFUTED if region.excludes(low, high) else None


def fault_stretch(measured: Differences, fault_cost_ns: float) -> Stretch:
    """By how much the true log ratio, freed of page faults, may lie below and above the measured one."""
    more = measured.faults_baseline - measured.faults_variant
    call_ns = measured.call_baseline_ns if more > 0 else measured.call_variant_ns
    if more == 0 or math.isnan(call_ns):
        return NO_STRETCH
    share = abs(more) * fault_cost_ns / call_ns
    stretch = -math.log1p(-share) if share < 1 else math.inf
    return Stretch(low=stretch) if more > 0 else Stretch(high=stretch)


def _why_open(interval: Interval, region: Region, faults: Stretch, bias: float, dependent: bool) -> Why | None:
    """Why the interval does not answer, or its answer does not count; None where it does."""
    verdict = _settled(interval.low, interval.high, region)
    if verdict is None and (math.isinf(interval.low) or math.isinf(interval.high)):
        return Cause.TOO_FEW_ROUNDS, TOO_FEW
    if verdict is None:
        return Cause.ACROSS_LIMIT, _crossed(interval, region, interval.low, interval.high)
    if not decided(interval, region, faults):
        return Cause.CONFOUNDED, "confounded: the difference in page faults may have made this effect"
    low, high = interval.low - faults.low - bias, interval.high + faults.high + bias
    if _settled(low, high, region) != verdict:
        crossed, by = _crossed(interval, region, low, high), percent(math.expm1(bias))
        return Cause.CONFOUNDED, f"confounded: with the {by} by which A/A checks differ, {crossed}"
    return (Cause.DEPENDENT, DEPENDENT) if dependent else None


def _crossed(interval: Interval, region: Region, low: float, high: float) -> str:
    """Which limit lies between two ends that leave it open."""
    crossed = [boundary for boundary in region.boundaries if low < boundary < high]
    nearest = min(crossed or region.boundaries, key=lambda boundary: abs(interval.centre - boundary))
    return f"the interval lies on both sides of {math.exp(nearest):.4g}×"


# From effects to a verdict on a part of a claim.


ON_THE_MACHINE = "depends on the machine"
"""What is said where machines differ."""

PIECE = ", piece "
"""In the name of a run, between the machine and the number of the piece of work that it measured there."""


def how_many(runs: Iterable[str]) -> int:
    """How many machines there are, by the names of their runs."""
    return len(set(map(machine_of, runs)))


def machine_of(run: str) -> str:
    """The machine of a run: several pieces of work may have been measured on one."""
    return run.partition(PIECE)[0]


def combine(effects: Sequence[Effect]) -> tuple[Word, str]:
    """Verdict and reason for a part from its effects (at least one), which are told by workload, and by baseline where
    there are several.

    All settled alike: that. Settled differently: depends, with all lists. None of them evidence: not evidence.
    Otherwise inconclusive, with what is open; one open comparison is enough.
    """
    if not effects:
        raise ValueError("a verdict needs at least one effect")
    several = len({effect.baseline for effect in effects}) > 1
    named: dict[Word, list[str]] = {}
    for effect in effects:
        where = f"{effect.place} against {effect.baseline}" if several else effect.place
        named.setdefault(effect.verdict, []).append(where)
    settled: dict[Word, list[str]] = {word: named[word] for word in SETTLED if word in named}
    excluded = named.get(Word.NOT_EVIDENCE, [])
    open_ = named.get(Word.INCONCLUSIVE, []) + excluded
    if len(settled) > 1:
        reason = "; ".join(f"{word} on {', '.join(places)}" for word, places in settled.items())
        return Word.DEPENDS, reason + (f"; inconclusive: {', '.join(open_)}" if open_ else "")
    if len(excluded) == len(effects):
        return Word.NOT_EVIDENCE, reasons(effects)
    if open_:
        return Word.INCONCLUSIVE, _open_reason(effects, settled)
    [(word, places)] = settled.items()
    return word, f"{LOOKS[word].start} on {', '.join(places)}"


def _open_reason(effects: Sequence[Effect], settled: Mapping[Word, Sequence[str]]) -> str:
    """One sentence for all open effects: why they are open, and what the others are."""
    open_ = [effect for effect in effects if effect.verdict in (Word.INCONCLUSIVE, Word.NOT_EVIDENCE)]
    causes = _by_cause(open_)
    same = len(causes) == 1 and len(open_) == len(effects)
    parts = [next(iter(causes)) if same else "; ".join(f"{why} on {', '.join(where)}" for why, where in causes.items())]
    parts += [f"{word} on {', '.join(where)}" for word, where in settled.items()]
    return f"not decided: {'; '.join(parts)}"


MOMENT_S = 10.0
"""Estimates below this are not told to the second."""

MOST_SECONDS = 4 * 3600.0
"""Longer than this nobody would measure for one effect."""

AT_A_LIMIT = "more time may not decide it: as much as this varies, the difference lies too near a limit"
"""Of an effect whose interval may end on neither side of it for as long as anybody measures."""

TOO_LONG = f"more than {duration(MOST_SECONDS)} would be needed"


@dataclass(frozen=True)
class ToSettle:
    """What it takes to settle open effects: those that are sure to be settled in 9 of 10 cases, those that have no
    interval yet and would get one, and those that time alone may not settle. All seconds are of the clock."""

    settles: tuple[Effect, ...]
    begins: tuple[Effect, ...]
    takes_long: tuple[Effect, ...]
    at_a_limit: tuple[Effect, ...]

    @classmethod
    def of(cls, effects: Iterable[Effect]) -> ToSettle:
        """Of those whose seconds are known."""
        known = sorted((each for each in effects if each.seconds_more >= 0), key=lambda each: each.seconds_more)
        soon = [each for each in known if each.seconds_more <= MOST_SECONDS]
        early = (Cause.NO_ROUNDS, Cause.TOO_FEW_ROUNDS)
        return cls(
            settles=tuple(each for each in soon if each.cause not in early),
            begins=tuple(each for each in soon if each.cause in early),
            takes_long=tuple(each for each in known if MOST_SECONDS < each.seconds_more < math.inf),
            at_a_limit=tuple(each for each in known if math.isinf(each.seconds_more)),
        )

    @property
    def never(self) -> str:
        """Why the others may stay open; empty where there are none."""
        return "; ".join([*[TOO_LONG] * bool(self.takes_long), *[AT_A_LIMIT] * bool(self.at_a_limit)])


def clock_seconds(effects: Iterable[Effect]) -> float:
    """Seconds of the clock that all of these effects need together: those of one workload have the same processes,
    those of several come one after the other."""
    needed: dict[str, float] = {}
    for effect in effects:
        needed[effect.place] = max(needed.get(effect.place, 0.0), effect.seconds_more)
    return sum(needed.values())


def about(seconds: float) -> str:
    """ "about 4 min", "less than 10 s"."""
    return f"about {duration(seconds)}" if seconds >= MOMENT_S else f"less than {duration(MOMENT_S)}"


def reasons(effects: Sequence[Effect]) -> str:
    """Each effect's own reason, those with the same reason together."""
    return "; ".join(f"{', '.join(where)} ({why})" for why, where in _by_cause(effects).items())


def _by_cause(effects: Sequence[Effect]) -> dict[str, list[str]]:
    """Reason, or verdict where there is none → the different workloads."""
    causes: dict[str, list[str]] = {}
    for effect in effects:
        where = causes.setdefault(effect.reason or effect.verdict, [])
        where += [name for name in [effect.place] if name not in where]
    return causes
