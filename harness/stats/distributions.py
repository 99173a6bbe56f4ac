"""Chances and quantiles of the normal, Student's t, chi-squared and beta distributions, and the root of a function.

SciPy has all of them, and is as large as everything else that comparing two functions needs; the tests compare with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

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


def chi_squared_quantile(freedom: int, above: float) -> float:
    """Where chi-squared with so many degrees of freedom lies above with this chance."""

    def excess(place: float) -> float:
        if not place:
            return 1 - above
        half, odd = place / 2, freedom % 2
        powers = (number + odd / 2 for number in range(freedom // 2))
        terms = (math.exp(power * math.log(half) - half - math.lgamma(power + 1)) for power in powers)
        return odd * math.erfc(math.sqrt(half)) + sum(terms) - above

    far = float(freedom)
    while excess(far) > 0:
        far *= 2
    return root(excess, 0.0, far)


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
