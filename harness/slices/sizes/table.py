"""The table of a run that compares several sides, or at several sizes: all that is known of it, from its folder.

All intervals of times, ratios and crossings hold at once with the run's confidence: those of each two sides at each
size share alpha, as plan and judge share it. The exponents of all sides do so too, among themselves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...evidence.evidence import Evidence
from ...judge.parts import parts_of
from ...plan.options import AGAINST, BEST
from ...report.outcome import words_of
from ...report.standings import evidence_of
from ...spec.comparison import Comparison, held_together, is_one_table, sides_of
from ...spec.words import Word
from ...stats.confidence import Interval, Level, running_interval
from ...stats.means import is_dependent
from ...stats.samples import Clock, whole_processes
from ...store.folder import RunFolder
from ...store.schema import ExperimentRecord, Manifest
from ...store.verdict_schema import Effect

# Where two curves over the size cross, and how a time grows. Pure functions; ratios and times are logarithms.
# A crossing is only said where one side is proven faster at one size, and the other at another: between the two the
# order changes somewhere, whatever the curves look like. Its interval is narrower than those two sizes as far as one
# assumption allows: over neighbouring sizes the log ratio, over the log size, bends one way. A curve that bends up
# lies below the line through two of its points between these, and above the lines through the points before and
# behind; one that bends down the other way round. Both ways are allowed for. So linear against constant time is as
# right as n log n against n², and the interval holds whenever those of all sizes do, which share alpha.


STEPS = 400
"""Between two sizes, of the grid on which a crossing is looked for."""

ENDLESS = 1e3
"""Log units that stand for an open end of an interval: times do not differ by that much."""

Ends = NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """The log ratio of two sides at one size. sign: on which side of 0 it is proven to lie; 0: on neither."""

    size: float
    centre: float
    low: float
    high: float
    sign: int


@dataclass(frozen=True)
class CrossingPoint:
    """A size at which the log ratio changes its sign, with its interval. between: the sizes before and behind it at
    which the sign is proven. after: the sign behind it."""

    size: float
    low: float
    high: float
    between: tuple[float, float]
    after: int


def crossings(points: Sequence[Point]) -> list[CrossingPoint]:
    """All crossings of these points, which are in the order of their sizes."""
    proven = [index for index, point in enumerate(points) if point.sign]
    return [
        _crossing(points, first, last)
        for first, last in itertools.pairwise(proven)
        if points[first].sign != points[last].sign
    ]


def _crossing(points: Sequence[Point], first: int, last: int) -> CrossingPoint:
    sizes = np.log([point.size for point in points])
    lows, highs = (np.clip(ends, -ENDLESS, ENDLESS) for ends in np.transpose([(p.low, p.high) for p in points]))
    grid = np.concatenate([np.linspace(sizes[k], sizes[k + 1], STEPS) for k in range(first, last)])
    bands = [_band(sizes, lows, highs, k, grid[(k - first) * STEPS :][:STEPS]) for k in range(first, last)]
    low, high = (np.concatenate(ends) for ends in zip(*bands, strict=True))
    if points[last].sign < 0:
        low, high = -high, -low
    centre = np.interp(grid, sizes, [point.centre for point in points])
    at = int(np.argmax(centre * points[last].sign >= 0))
    # Where the curve may have crossed already, and where it may not have yet. A narrow one crosses between two places.
    may_have, may_not = int(np.argmax(high >= 0)), int(np.flatnonzero(low <= 0)[-1])
    start, end = max(min(may_have, at) - 1, 0), min(max(may_not, at) + 1, grid.size - 1)
    size, least, most = np.exp(grid[[at, start, end]]).tolist()
    return CrossingPoint(size, least, most, (points[first].size, points[last].size), points[last].sign)


def _band(sizes: Ends, lows: Ends, highs: Ends, k: int, grid: Ends) -> tuple[Ends, Ends]:
    """Between which ends the curve may lie from the size at `k` to the next."""
    low, high = (np.interp(grid, sizes[k : k + 2], ends[k : k + 2]) for ends in (lows, highs))
    beside = []
    for near, far in ((k, k - 1), (k + 1, k + 2)):
        if 0 <= far < sizes.size:
            share = np.abs((grid - sizes[near]) / (sizes[far] - sizes[near]))
            beside.append(
                ((1 + share) * lows[near] - share * highs[far], (1 + share) * highs[near] - share * lows[far])
            )
    if not beside:  # two sizes show no bend
        return np.full_like(low, -ENDLESS), np.full_like(high, ENDLESS)
    lines_low, lines_high = np.max([line[0] for line in beside], axis=0), np.min([line[1] for line in beside], axis=0)
    return np.minimum(low, lines_low), np.maximum(high, lines_high)


@dataclass(frozen=True)
class Growth:
    """With which power of the size a time grows: over all sizes (of the line that fits the logarithms best), and from
    the last size but one to the last, where what a call takes in any case counts least."""

    whole: Interval
    last: Interval


def growth(sizes: Sequence[float], logs: NDArray[np.float64], level: Level) -> Growth | None:
    """logs: log time of one side [process, size], of processes that measured all sizes. None for fewer than two
    sizes."""
    if len(sizes) < 2:
        return None
    x = np.log(sizes)
    centred = x - x.mean()
    ends = np.zeros(x.size)
    ends[-2:] = np.array([-1.0, 1.0]) / (x[-1] - x[-2])
    return Growth(*(_exponent(logs @ weights, level) for weights in (centred / (centred @ centred), ends)))


def _exponent(values: NDArray[np.float64], level: Level) -> Interval:
    interval = running_interval(values, level)
    if interval.unstable or (values.size and is_dependent(values)):
        return Interval(interval.centre, -math.inf, math.inf, interval.n, unstable=True)
    return interval


TURNED = {Word.FASTER: Word.SLOWER, Word.SLOWER: Word.FASTER}
SIGNS = {Word.FASTER: 1, Word.SLOWER: -1}


@dataclass(frozen=True)
class SizeTable:
    """What a run says of its sides at its sizes. sides: the baseline first. sizes: workload → size of its inputs, the
    smallest first; 0 where it has none. against: a side, or BEST."""

    manifest: Manifest
    evidence: Evidence
    sides: tuple[str, ...]
    sizes: Mapping[str, int]
    against: str

    @property
    def alpha(self) -> float:
        """What each interval is at."""
        sized = any(self.sizes.values())
        return self.evidence.alpha / held_together(len(self.sides) - 1, len(self.sizes), sized=sized)

    def named(self, workload: str) -> str:
        """The size, or the name of an input that has none."""
        return f"{size:,}" if (size := self.sizes[workload]) else workload

    @cached_property
    def effects(self) -> Mapping[tuple[str, str, str], Effect]:
        """(workload, baseline, variant) → their ratio, judged as every comparison is; of each two sides, both ways."""
        effects = {}
        for baseline, variant in itertools.combinations(self.sides, 2):
            [part] = parts_of([], [(baseline, variant)])
            for effect in part.judge(self.evidence, self.alpha).effects:
                effects[effect.workload, baseline, variant] = effect
                effects[effect.workload, variant, baseline] = _turned(effect)
        return effects

    @cached_property
    def times(self) -> Mapping[tuple[str, str], Interval]:
        """(workload, side) → log nanoseconds of a call; none of a side that is left out."""
        intervals = {}
        for workload, side in itertools.product(self.sizes, self.sides):
            logs = [*self._by_process(workload, side).values()]
            if logs and (workload, side) not in self.evidence.unusable:
                intervals[workload, side] = running_interval(logs, self.evidence.design.plan(workload, self.alpha))
        return intervals

    def best(self, workload: str) -> tuple[Word, list[str]]:
        """FASTER and the side that is proven faster than all others; else SAME or INCONCLUSIVE and those that none is
        proven faster than."""
        timed = [side for side in self.sides if (workload, side) in self.times]
        words = {pair: self.effects[workload, *pair].verdict for pair in itertools.permutations(timed, 2)}
        left = [
            side for side in timed if not any(words[side, other] == Word.FASTER for other in timed if other != side)
        ]
        if len(timed) > 1 and len(left) == 1:
            return Word.FASTER, left
        alike = len(left) > 1 and all(words[pair] == Word.SAME for pair in itertools.combinations(left, 2))
        return (Word.SAME if alike else Word.INCONCLUSIVE), left

    def reference(self, workload: str) -> str:
        """The side that the others are compared with there: of several that may be the best the one with the least
        time."""
        if self.against != BEST:
            return self.against
        left = self.best(workload)[1] or [side for side in self.sides if (workload, side) in self.times]
        return min(left, key=lambda side: self.times[workload, side].centre, default=self.sides[0])

    @cached_property
    def crossings(self) -> list[tuple[str, str, CrossingPoint]]:
        """(the side that is faster before, the one that is faster behind, where), of each two sides."""
        places = []
        for first, second in itertools.combinations(self.sides, 2):
            timed = [name for name in self.sizes if {(name, first), (name, second)} <= self.times.keys()]
            points = [self._point(self.effects[name, first, second]) for name in timed if self.sizes[name]]
            for crossing in crossings([point for point in points if math.isfinite(point.centre)]):
                places.append((first, second, crossing) if crossing.after > 0 else (second, first, crossing))
        return places

    def _point(self, effect: Effect) -> Point:
        """Its interval is open where it cannot be taken for what is true."""
        comparison = Comparison(effect.workload, effect.variant, effect.baseline)
        doubtful = effect.cause.is_doubtful or self.evidence.is_dependent(comparison)
        low, high = (math.log(end) if end else -math.inf for end in (effect.low, effect.high))
        ends = (-math.inf, math.inf) if doubtful else (low, high)
        return Point(self.sizes[effect.workload], math.log(effect.ratio), *ends, SIGNS.get(effect.verdict, 0))

    @cached_property
    def growth(self) -> Mapping[str, Growth]:
        """Side → how its time grows; none of a side that is left out at some size. Where a size has processes of its
        own, the first of each size are taken together, then the second ones, and so on."""
        sizes = {name: float(size) for name, size in self.sizes.items() if size}
        alpha = self.evidence.alpha / (2 * len(self.sides))
        growths: dict[str, Growth] = {}
        for side in self.sides:
            logs = [self._by_process(name, side) for name in sizes if (name, side) in self.times]
            if len(logs) < max(len(sizes), 1):
                continue
            common = sorted(set.intersection(*map(set, logs)))
            ordered = [[of_size[process] for process in common] or [*of_size.values()] for of_size in logs]
            values = np.array([*zip(*ordered, strict=False)])
            plan = self.evidence.design.plan(next(iter(sizes)), alpha)
            if grown := growth([*sizes.values()], values, plan):
                growths[side] = grown
        return growths

    def _by_process(self, workload: str, side: str) -> dict[int, float]:
        """Log times, all by the clock that serves every side at every size."""
        clocks = {self.evidence.clocks.of(name, *self.sides) for name in self.sizes}
        clock: Clock = "wall" if "wall" in clocks else clocks.pop()
        whole = whole_processes(self.evidence.times(workload, side, clock=clock))
        return {process: float(log) for (process, _), log in zip(whole.starts, whole.logs[:, 0], strict=True)}

    def record(self, workload: str) -> ExperimentRecord:
        """What run.json has of it."""
        return next(each for each in self.manifest.experiments if each.workload.name == workload)

    def work(self, workload: str) -> Mapping[str, float]:
        """What a call does, by its input generator: "items", "bytes"."""
        return next((facts.work for facts in self.record(workload).facts.values() if facts.work), {})

    def curves(self) -> dict[str, list[tuple[float, float, float, float]]]:
        """Side → (size, nanoseconds of a call, both ends of its interval), for a picture."""
        return {
            side: [
                (float(size), _ns(time.centre), _ns(time.low), _ns(time.high))
                for name, size in self.sizes.items()
                if size and (time := self.times.get((name, side)))
            ]
            for side in self.sides
        }

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "sides": self.sides,
            "against": self.against,
            "confidence": 1 - self.evidence.alpha,
            "sizes": [{**self._best(name), "sides": [*self._rows(name)]} for name in self.sizes],
            "crossings": [
                {"faster_before": before, "faster_after": after, **_json(at), "proven_between": at.between}
                for before, after, at in self.crossings
            ],
            "growth": [
                {"side": side, "over_all_sizes": _json(grown.whole), "at_the_last": _json(grown.last)}
                for side, grown in self.growth.items()
            ],
        }

    def _best(self, workload: str) -> dict[str, Any]:
        word, left = self.best(workload)
        place = {"size": self.sizes[workload] or None, "input": workload}
        return {**place, "against": self.reference(workload), "best": left, "verdict": word}

    def _rows(self, workload: str) -> Iterator[dict[str, Any]]:
        reference, amounts = self.reference(workload), self.work(workload)
        for side in self.sides:
            row: dict[str, Any] = {"side": side}
            if time := self.times.get((workload, side)):
                ends = {"ms": time.centre, "low_ms": time.low, "high_ms": time.high}
                row |= {name: _finite(_ns(log) / 1e6) for name, log in ends.items()}
                row |= {f"{what}_per_second": amount / math.exp(time.centre) * 1e9 for what, amount in amounts.items()}
                row["processes"] = time.n
            if effect := self.effects.get((workload, reference, side)):
                row |= {"ratio": effect.value, "ratio_low": effect.lower, "ratio_high": effect.upper}
                row |= {"verdict": effect.verdict, "reason": "; ".join(effect.said)}
            yield row


def _json(at: CrossingPoint | Interval) -> dict[str, float | None]:
    value = {"size": at.size} if isinstance(at, CrossingPoint) else {"exponent": _finite(at.centre)}
    return {**value, "low": _finite(at.low), "high": _finite(at.high)}


def _ns(log: float) -> float:
    """Nanoseconds by their logarithm; NaN for an open end."""
    return math.exp(log) if math.isfinite(log) else math.nan


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _turned(effect: Effect) -> Effect:
    """The same, the other way round."""
    ratio, high, low = (1 / end if end else math.inf for end in (effect.ratio, effect.low, effect.high))
    verdict = TURNED.get(effect.verdict, effect.verdict)
    turned = replace(effect, variant=effect.baseline, baseline=effect.variant, verdict=verdict)
    return replace(turned, ratio=ratio, low=low, high=high)


def is_tabled(manifest: Manifest) -> bool:
    """Whether a run compares several sides with one, or at several sizes."""
    sized = any(each.workload.size for each in manifest.experiments)
    return manifest.mode == "compare" and not manifest.machines and is_one_table(len(manifest.ad_hoc), sized=sized)


def table_of(folder: RunFolder, against: str = "") -> SizeTable | None:
    """The table of a run; None of one that compares two sides on inputs without a size, or claims. against: as
    `SizeTable` has it; where it is not said, as the command of the run did. Raises RunError, and ValueError for a
    side that the run does not have."""
    manifest = folder.manifest()
    if not is_tabled(manifest):
        return None
    sizes = {each.workload.name: each.workload.size or 0 for each in manifest.experiments}
    sides = sides_of(manifest.ad_hoc)
    against = against or (BEST if BEST in words_of(manifest.command, [AGAINST]) else sides[0])
    if against not in (BEST, *sides):
        raise ValueError(f"{AGAINST} {against}: expected {BEST} or a side: {', '.join(sides)}")
    ordered = dict(sorted(sizes.items(), key=lambda item: item[1]))
    return SizeTable(manifest, evidence_of(folder, manifest), sides, ordered, against)
