"""Effects over machines: the mean over those that measured, how much they differ, and what to expect of others.

Each machine gives an interval for what is true on it. What is true on another machine may differ by more than any
interval is wide, so machines are never poured into one series of rounds. Two questions are asked:

- *These machines.* The mean of what is true on each. Errors of different machines are independent, so half widths add
  as errors do, by squares; each is that of an interval that holds at every look, which makes the sum wide enough.
  How much the machines differ has no part in it (the "fixed effects" model: Rice, Higgins & Lumley 2018).
- *Machines in general.* The measured kinds are taken for a draw from all (random effects). The variance between them is
  Paule & Mandel's, the interval of the mean Hartung & Knapp's with their factor not below 1, and that for one more kind
  Higgins', Thompson's & Spiegelhalter's (2009), which is Student's t with two degrees of freedom less than kinds.

docs/concepts/statistics.md has simulated rates. Units are those of the effects: log ratios, or values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..stats.means import CentredInterval, Mean, between_variance, scatter

LEAST_KINDS = 5
"""Of fewer kinds of machines nothing is said about machines in general: the intervals are too wide to be of use, and
the spread between machines is hardly known."""


@dataclass(frozen=True)
class Draw:
    """Machines in general: the mean over all, and where one more kind of machine lies."""

    mean: CentredInterval
    one_more: CentredInterval


def mean_of(intervals: Sequence[CentredInterval]) -> CentredInterval:
    """The mean of what is true on each of these machines, each interval at the same alpha. One is itself."""
    count = len(intervals)
    centre = sum(each.centre for each in intervals) / count
    below = math.hypot(*(each.centre - each.low for each in intervals)) / count
    above = math.hypot(*(each.high - each.centre for each in intervals)) / count
    return CentredInterval(centre, centre - below, centre + above)


def have_no_common_point(intervals: Sequence[CentredInterval]) -> bool:
    """Whether two of the intervals do not touch."""
    return max(each.low for each in intervals) > min(each.high for each in intervals)


def random_effects(centres: ArrayLike, errors: ArrayLike, alpha: float) -> Draw:
    """What to expect of machines of which these (three or more) are a draw. Raises ValueError for fewer."""
    y, v = np.asarray(centres, dtype=np.float64), np.asarray(errors, dtype=np.float64) ** 2
    if y.size < 3:
        raise ValueError(f"machines in general need three kinds of machines, not {y.size}")
    between = between_variance(y, np.sqrt(v))
    weights = 1 / (v + between)
    mean = float(weights @ y / weights.sum())
    factor = max(1.0, scatter(y, weights) / (y.size - 1))
    error = math.sqrt(factor / weights.sum())
    all_of_them = Mean(mean, error, y.size - 1)
    one_more = Mean(mean, math.hypot(error, math.sqrt(between)), y.size - 2)
    return Draw(CentredInterval(mean, *all_of_them.ends(alpha)), CentredInterval(mean, *one_more.ends(alpha)))
