"""How many values a series will need until its interval answers a question: in nine of ten cases so many are enough.

Nobody knows where the true effect lies, nor how much values vary: both are drawn from what the series leaves possible
(normal values, flat priors: Student's t for the mean, chi-squared for the spread; Box & Tiao 1973). For each draw the
series goes on at random to every planned look. The estimate alone would be right half of the time, and less where it
lies near a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .confidence import (
    RESOLUTION,
    Level,
    Look,
    ends_of_looks,
    looks,
    looks_reached,
    one_error,
    pseudo_median,
    running_interval,
)

CHANCE = 0.9
"""With this probability what is forecast comes true."""

DRAWS = 1000

FREEDOM = 0.68
"""Of the degrees of freedom of a standard deviation: an error by signed ranks is that much less certain."""

MOST_TIMES = 64
"""Of a series that may need more than so many times its values nothing is forecast: its effect lies at the limit."""

Ends = NDArray[np.float64]


class Question(NamedTuple):
    """At what a series is looked at, and whether an interval with these ends answers, of each of many."""

    level: Level
    answers: Callable[[Ends, Ends], NDArray[np.bool_]]


def values_needed(series: ArrayLike, questions: Sequence[Question]) -> float:
    """Number of values, those of a planned look, with which one of the questions is answered with probability CHANCE;
    infinite where MOST_TIMES as many may not do, and where fewer than two values give no spread. Raises ValueError for
    a value that is NaN or infinite.
    """
    values = np.asarray(series, dtype=np.float64)
    if values.size < 2:
        return math.inf
    count, centre, error = values.size, pseudo_median(values), one_error(values)
    error = max(error, RESOLUTION / math.sqrt(count))
    chi, mean, steps = _draws(count)
    spread = error * math.sqrt(count) * chi
    means = centre + error * chi * mean
    answered, total, before = np.zeros(DRAWS, dtype=bool), np.zeros(DRAWS), count
    asked = [_Asked(each, values, error) for each in questions]
    plans = [list(takewhile(lambda look: look.rounds <= MOST_TIMES * count, looks(each.level))) for each in questions]
    looks_at = [{look.rounds: look for look in plan if look.rounds > count} for plan in plans]
    for noise, rounds in zip(steps, sorted(set().union(*looks_at)), strict=False):
        more, new, before = rounds - before, rounds - count, rounds
        total += more * means + math.sqrt(more) * spread * noise
        varies = np.sqrt((count * (error**2 * count) + new * spread**2) / rounds)
        for question, planned in zip(asked, looks_at, strict=True):
            if rounds in planned:
                answered |= question.is_answered(planned[rounds], count, (count * centre + total) / rounds, varies)
        if answered.mean() >= CHANCE:
            return rounds
    return math.inf


class _Asked:
    """A question, with the ends that the interval of each draw has so far."""

    def __init__(self, question: Question, values: NDArray[np.float64], error: float) -> None:
        interval = running_interval(values, question.level)
        self.answers, self.wider = question.answers, _tails(values, question.level, error)
        self.low, self.high = np.full(DRAWS, interval.low), np.full(DRAWS, interval.high)

    def is_answered(self, look: Look, count: int, centres: Ends, spreads: Ends) -> NDArray[np.bool_]:
        """Which draws answer after this look. count: values of the series itself."""
        wider = 1 + self.wider * math.sqrt(count / look.rounds)
        half = replace(look, least=0.0).half_width(1.0) * np.maximum(spreads, RESOLUTION) * wider
        half = np.maximum(half, look.least)
        self.low, self.high = np.maximum(self.low, centres - half), np.minimum(self.high, centres + half)
        return (self.low <= self.high) & self.answers(self.low, self.high)


def _tails(values: NDArray[np.float64], level: Level, error: float) -> float:
    """How much wider (as a share) the interval of the last look is than its error says: a few values far off hardly
    move the error, and the ends of an interval that is rarely wrong lie among them. It wears off with more values."""
    reached = looks_reached(values.size, level)
    if not reached or reached[-1].least:  # an early look is as wide as it is for reasons of its own
        return 0.0
    [(_, low, high)] = ends_of_looks(values, reached[-1:])
    usual = reached[-1].half_width(error * math.sqrt(values.size))
    return max((high - low) / 2 / usual - 1, LEAST_WIDER)


LEAST_WIDER = 0.03
"""By this share the interval of the signed ranks is wider than Student's on normal values."""

MOST_LOOKS = 40
"""More than there are, of two plans, between a series and one of MOST_TIMES its values."""


@lru_cache(maxsize=64)
def _draws(count: int) -> tuple[Ends, Ends, Ends]:
    """Of each draw, how many times the estimated spread the true one is, how many errors the mean lies off, and the
    noise until each look. The same for each series of so many values: what is said of a run does not change."""
    rng = np.random.default_rng(count)
    freedom = max(FREEDOM * (count - 1), 1.0)
    chi = np.sqrt(freedom / rng.chisquare(freedom, DRAWS))
    return chi, rng.standard_normal(DRAWS), rng.standard_normal((MOST_LOOKS, DRAWS))
