"""Means with their errors: of one sample, of the difference of two, and how much many of them differ.

For samples that are looked at once, when nothing is added to them any more. The mean is trimmed: the lowest and the
highest fifth of the values are left out, and their place in the spread is taken by the values next to them (Tukey &
McLaughlin 1963). Two such means are compared as Yuen (1974) does, which is Welch's test of trimmed means: neither the
sizes nor the spreads of the samples have to be alike, and values far out weigh little. Units are those of the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Chances and quantiles of the normal, Student's t, chi-squared and beta distributions, and the root of a function.
# SciPy has all of them, and is as large as everything else that comparing two functions needs; the tests compare with
# it.


_TINY = 1e-300  # in place of 0 in a continued fraction


def normal_chance(place: float) -> float:
    """Chance that a standard normal number lies below `place`."""
    return math.erfc(-place / math.sqrt(2)) / 2


def normal_chances(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same for each of these places."""
    return np.array(list(map(math.erfc, (places / -math.sqrt(2)).tolist()))) / 2


def normal_quantile(chance: float) -> float:
    """Where a standard normal number lies below with this chance, which is between 0 and 1."""
    return NormalDist().inv_cdf(chance)


@lru_cache(maxsize=4096)
def student_quantile(freedom: float, chance: float) -> float:
    """Where Student's t with so many degrees of freedom (any number above 0; infinitely many are the normal
    distribution) lies below with this chance."""
    if chance == 0.5:
        return 0.0
    if freedom > 1e5 and 0 < chance < 1:  # Cornish and Fisher's expansion (Abramowitz & Stegun 26.7.5)
        z = normal_quantile(chance)
        return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    tail = min(chance, 1 - chance)
    if not tail:
        return math.copysign(math.inf, chance - 0.5)

    def excess(logarithm: float) -> float:
        square = math.exp(2 * logarithm)
        above = _beta_chance(freedom / 2, 0.5, freedom / (freedom + square), square / (freedom + square)) / 2
        return math.log(above or _TINY) - math.log(tail)

    far = 1.0
    while excess(far) > 0:
        far *= 2
    return math.copysign(math.exp(root(excess, -60.0, far)), chance - 0.5)


def exact_ends(count: int, of: int, alpha: float) -> tuple[float, float]:
    """Interval of a rate of which `count` of `of` were seen; either end misses it with alpha / 2 at most (Clopper &
    Pearson 1934)."""
    low = _beta_quantile(count, of - count + 1, alpha / 2) if count else 0.0
    return low, _beta_quantile(count + 1, of - count, 1 - alpha / 2) if count < of else 1.0


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a continuous function is 0 between two places at which it has different signs (Ridders 1979), as exact as
    floats are."""
    at_low, at_high = function(low), function(high)
    if not (at_low and at_high):
        return high if at_low else low
    if (at_low > 0) == (at_high > 0):
        raise ValueError(f"the function has one sign at both {low} and {high}")
    previous = math.inf
    while True:
        middle = (low + high) / 2
        at_middle = function(middle)
        bend = math.sqrt(at_middle**2 - at_low * at_high)
        if not (at_middle and bend):
            return middle
        place = middle + (middle - low) * math.copysign(1, at_low - at_high) * at_middle / bend
        if abs(place - previous) <= 1e-15 * max(abs(place), 1e-3) or not low < place < high:
            return place
        previous, at_place = place, function(place)
        if not at_place:
            return place
        for edge, value in ((middle, at_middle), (place, at_place)):
            if (value > 0) == (at_low > 0):
                low, at_low = max((low, at_low), (edge, value))
            else:
                high, at_high = min((high, at_high), (edge, value))


def _beta_quantile(a: float, b: float, chance: float) -> float:
    return root(lambda place: _beta_chance(a, b, place, 1 - place) - chance, 0.0, 1.0)


def _beta_chance(a: float, b: float, place: float, rest: float) -> float:
    """Chance that a beta-distributed number lies below `place`, which is 1 - `rest` (both, so that none is rounded)."""
    if place <= 0 or rest <= 0:
        return float(rest <= 0)
    front = math.exp(a * math.log(place) + b * math.log(rest) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
    if place > (a + 1) / (a + b + 2):  # beyond it the fraction ends late
        return 1 - front / b * _beta_fraction(b, a, rest)
    return front / a * _beta_fraction(a, b, place)


def _beta_fraction(a: float, b: float, place: float) -> float:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by the method of Lentz and Thompson."""
    value, upper, lower = 1.0, math.inf, 1.0
    for number in range(1, 20_000):
        m, odd = divmod(number, 2)
        part = -(a + m) * (a + b + m) if odd else m * (b - m)
        part *= place / ((a + number - 1) * (a + number))
        lower = 1 / (1 + part * lower or _TINY)
        upper = 1 + part / upper or _TINY
        value *= upper * lower
        if abs(upper * lower - 1) < 1e-16:
            break
    return value


TRIMMED = 0.2
"""Share of the values that is left out at each end."""


@dataclass(frozen=True)
class CentredInterval:
    """An interval around `centre`; infinite ends where it is open."""

    centre: float
    low: float
    high: float


@dataclass(frozen=True)
class Mean:
    """A mean, its standard error, and the degrees of freedom of that error; infinite where it is known."""

    centre: float
    error: float
    freedom: float

    def plus(self, other: Mean) -> Mean:
        """The sum of two that are independent, with Welch's and Satterthwaite's degrees of freedom."""
        error = math.hypot(self.error, other.error)
        shares = sum((each.error / error) ** 4 / each.freedom for each in (self, other)) if error else 0.0
        return Mean(self.centre + other.centre, error, 1 / shares if shares else math.inf)

    def minus(self, other: Mean) -> Mean:
        """The difference of two that are independent."""
        return self.plus(Mean(-other.centre, other.error, other.freedom))

    def ends(self, alpha: float) -> tuple[float, float]:
        """The interval that misses the truth with probability `alpha` (Student's t)."""
        half = student_quantile(self.freedom, 1 - alpha / 2) * self.error
        return self.centre - half, self.centre + half


def trimmed_mean(values: ArrayLike, *, resolution: float = 0.0) -> Mean | None:
    """The trimmed mean of a sample; None where it has fewer than two values. resolution: its least error."""
    ordered: NDArray[np.float64] = np.sort(np.asarray(values, dtype=np.float64))
    if ordered.size < 2:
        return None
    cut = int(TRIMMED * ordered.size)
    kept = ordered[cut : ordered.size - cut]
    pulled_in = np.clip(ordered, kept[0], kept[-1])
    squares = float(np.square(pulled_in - pulled_in.mean()).sum())
    error = math.sqrt(squares / (kept.size * (kept.size - 1)))
    return Mean(float(kept.mean()), max(error, resolution), float(kept.size - 1))


def between_variance(centres: ArrayLike, errors: ArrayLike) -> float:
    """Variance between means beyond their errors (Paule & Mandel 1982): that with which they vary as they should.

    errors: standard error of each, above 0. 0 where the errors alone explain the differences.
    """
    y, v = np.asarray(centres, dtype=np.float64), np.asarray(errors, dtype=np.float64) ** 2
    return variance_of_scatter(y, v, y.size - 1)


def scatter(y: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Sum of weighted squares around the weighted mean (Cochran's Q)."""
    return float(weights @ np.square(y - weights @ y / weights.sum()))


def variance_of_scatter(y: NDArray[np.float64], v: NDArray[np.float64], expected: float) -> float:
    """The variance between means with which their scatter is what is expected; 0 where it is less anyway."""

    def excess(between: float) -> float:
        return scatter(y, 1 / (v + between)) - expected

    if y.size < 2 or excess(0.0) <= 0:
        return 0.0
    most = float(np.square(y - y.mean()).sum()) / expected  # there the scatter is what is expected at most
    return root(excess, 0.0, most) if excess(most) < 0 else most


# Do the values of a series depend on when they were measured? A test by permutations, fixed beforehand.
# An interval takes the values to be independent. They are not where each resembles the one before, or where they
# drift while they are measured. Either shows in the order of their ranks, and in no order that a shuffle makes more
# often than by chance. docs/concepts/statistics.md says how often that is seen.


LEVEL = 0.01
"""Chance that independent values are called dependent."""

CHUNKS, A_CHUNK = 9, 1_111  # 9,999 permutations, or draws of signs, not all in memory at once


def dependence(values: ArrayLike) -> float:
    """Chance that independent values show as much dependence on their order as these; 1 where nothing can be said."""
    series = np.asarray(values, dtype=np.float64)
    if series.size < 3 or np.ptp(series) == 0:
        return 1.0
    chances = _by_chance(series.size)
    here = _statistic(mid_ranks(series))
    return float((1 + chances.size - np.searchsorted(chances, here - 1e-9)) / (1 + chances.size))


def is_dependent(values: ArrayLike) -> bool:
    """Whether these values cannot be taken for independent."""
    return dependence(values) <= LEVEL


def mid_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1 on; equal values have their mean rank. (To import scipy.stats for its own takes a second.)"""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places], dtype=np.float64)


def _statistic(ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    """The larger one of two about standard normal deviates, over the last axis: how much each rank resembles the next
    (serial correlation, as in the rank test of Bartels 1982), and how much they rise or fall (Spearman's, by time)."""
    count = ranks.shape[-1]
    time = np.arange(count) - (count - 1) / 2
    centred = ranks - ranks.mean(axis=-1, keepdims=True)
    squares = (centred**2).sum(axis=-1)
    serial = (centred[..., 1:] * centred[..., :-1]).sum(axis=-1) / squares * math.sqrt(count) + 1 / math.sqrt(count)
    drift = np.abs(centred @ time) / np.sqrt(squares * (time @ time)) * math.sqrt(count - 1)
    return np.maximum(serial, drift)


@lru_cache(maxsize=512)
def _by_chance(count: int) -> NDArray[np.float64]:
    """The statistic of so many ranks in random orders, from the least on; the same ones whenever it is asked for."""
    rng = np.random.default_rng(count)
    orders = np.tile(np.arange(count, dtype=np.float64), (A_CHUNK, 1))
    return np.sort(np.concatenate([_statistic(rng.permuted(orders, axis=1)) for _ in range(CHUNKS)]))
