"""Where two curves over the size cross, and how a time grows. Pure functions; ratios and times are logarithms.

A crossing is only said where one side is proven faster at one size, and the other at another: between the two the
order changes somewhere, whatever the curves look like. Its interval is narrower than those two sizes as far as one
assumption allows: over neighbouring sizes the log ratio, over the log size, bends one way. A curve that bends up lies
below the line through two of its points between these, and above the lines through the points before and behind; one
that bends down the other way round. Both ways are allowed for. So linear against constant time is as right as n log n
against n², and the interval holds whenever those of all sizes do, which share alpha.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...stats.confidence import Interval, Level, running_interval
from ...stats.dependence import is_dependent

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
