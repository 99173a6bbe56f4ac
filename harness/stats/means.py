"""Means with their errors: of one sample, of the difference of two, and how much many of them differ.

For samples that are looked at once, when nothing is added to them any more. The mean is trimmed: the lowest and the
highest fifth of the values are left out, and their place in the spread is taken by the values next to them (Tukey &
McLaughlin 1963). Two such means are compared as Yuen (1974) does, which is Welch's test of trimmed means: neither the
sizes nor the spreads of the samples have to be alike, and values far out weigh little. Units are those of the values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .distributions import chi_squared_quantile, root, student_quantile

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
    return _variance_of_scatter(y, v, y.size - 1)


def most_between_variance(centres: ArrayLike, errors: ArrayLike, alpha: float) -> float:
    """Upper bound of that variance, too low with probability `alpha` (Viechtbauer 2007); infinite for one mean."""
    y, v = np.asarray(centres, dtype=np.float64), np.asarray(errors, dtype=np.float64) ** 2
    return math.inf if y.size < 2 else _variance_of_scatter(y, v, chi_squared_quantile(y.size - 1, 1 - alpha))


def scatter(y: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Sum of weighted squares around the weighted mean (Cochran's Q)."""
    return float(weights @ np.square(y - weights @ y / weights.sum()))


def _variance_of_scatter(y: NDArray[np.float64], v: NDArray[np.float64], expected: float) -> float:
    """The variance between means with which their scatter is what is expected; 0 where it is less anyway."""

    def excess(between: float) -> float:
        return scatter(y, 1 / (v + between)) - expected

    if y.size < 2 or excess(0.0) <= 0:
        return 0.0
    most = float(np.square(y - y.mean()).sum()) / expected  # there the scatter is what is expected at most
    return root(excess, 0.0, most) if excess(most) < 0 else most
