"""Intervals that may be looked at while measuring goes on: signed ranks at planned looks.

A series d_1, d_2, ... holds one log ratio a process. An ordinary confidence interval is wrong for it, because the
measuring loop stops when the interval decides: the chance that *some* look misses the truth grows with every look.
So the looks are planned: after 12, 15, 19, 24, 30, ... values, each a quarter more than the last, whatever the data
say. Each look may spend its share of alpha on missing the truth. With probability at least 1 - alpha the intervals
of all looks hold it, so stopping at any of them, for any reason, is sound, and so is intersecting them ("repeated
confidence intervals": Jennison & Turnbull, "Group Sequential Methods", 1999, chapter 9). Where it is known beforehand
how many values there will be, a `LookPlan` spends alpha along them, and the last interval is narrower.

A plan may also have early looks, for differences that are large: after 4, 6 and 8 values. So few ranks exclude
nothing, so these take Student's t, at a twentieth of alpha for all of them together, and an interval no narrower than
EARLY says: processes of two kinds may all be of one by chance, and then look far more alike than they are.

The interval of any other look is that of Wilcoxon's signed-rank test (Hodges & Lehmann 1963): it assumes that a
difference is as likely to lie above the true effect as below it by the same amount, and nothing about the shape beyond
that. The coin flip that orders each pair makes two equal sides symmetric, whatever the noise does. The values
must be independent.

Where the number of values is fixed beforehand, so that nobody looks before the last, `fixed_interval` is narrower.
Everything is in log units. docs/concepts/statistics.md has simulated rates of misses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count, takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .means import A_CHUNK, CHUNKS, mid_ranks, normal_chance, normal_chances, normal_quantile, root, student_quantile

FIRST_LOOK, GROWTH = 12, 1.25
"""Values before the first look, and how many times as many each further look has."""

SPENT = 0.15
"""Share of what is left of alpha that each look spends: 0.15, 0.1275, 0.108, ... of all of it."""

KEPT = 0.1
"""Share of alpha that is kept for going on beyond the horizon of a plan."""

EARLY = ((4, math.log(1.75)), (6, math.log(1.4)), (8, math.log(1.25)))
"""Values before each early look, and the least half width of its interval (log units)."""

EARLY_SHARE = 0.05
"""Share of alpha that the early looks of a plan spend together."""

RESOLUTION = 1e-4
"""Least half width (log units) of an interval, and least standard deviation that a series is credited with.

A sample lasts 0.2 ms or more and reading a clock is uncertain by some 20 ns, so one log ratio is not known better than
1e-4, however alike the times look. Without the floor a series of equal differences would have an interval of width
nil. Measured series have a standard deviation of 0.1 % and more, ten times the floor.
"""

EXACT_ROUNDS = 150
"""Up to so many rounds the distribution of the signed-rank sum is computed exactly; then its normal limit serves."""


@dataclass(frozen=True)
class Interval:
    """Where the true log ratio lies, after `n` values.

    `centre` is the pseudo-median (the median of the means of all pairs of values, Hodges & Lehmann) of all of them,
    moved to the nearer end where it lies outside. `low` and `high` are infinite while there are too few.
    `unstable` means that the intervals of different looks have no point in common: the effect drifted while it was
    measured. Then `low` and `high` are those of the last look alone.
    """

    centre: float
    low: float
    high: float
    n: int
    unstable: bool = False


@dataclass(frozen=True)
class Look:
    """A planned look."""

    rounds: int  # after how many values
    critical: float  # half width over the standard error of a mean, on normal differences
    rank: int  # the interval ends at the so many smallest and largest mean of two values; 0: it is Student's
    least: float = 0.0  # half width that it has in any case

    def half_width(self, spread: float) -> float:
        """Half width to expect on normal differences with standard deviation `spread`: about that of Student's t."""
        quantile = student_quantile(self.rounds - 1, normal_chance(self.critical))
        return max(quantile * max(spread, RESOLUTION) / math.sqrt(self.rounds), self.least)


@dataclass(frozen=True)
class LookPlan:
    """How a series may spend its chance of missing the truth. All of it is fixed before the first value.

    alpha: the chance. horizon: how many values the series will have by its costs; there is a look after so many. Until
    then alpha is spent in proportion to the values (Lan & DeMets 1983), less the share that is kept for going on; what
    is kept is spent look by look. None: nobody knows, and all of alpha is spent look by look. one_sided: what is asked
    can be wrong at one end of the interval only, so that each end may miss the truth with `alpha`. early: whether there
    are early looks.
    """

    alpha: float
    horizon: int | None = None
    one_sided: bool = False
    early: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha must lie between 0 and 1, not {self.alpha}")
        if self.horizon is not None and self.horizon < 1:
            raise ValueError(f"a horizon is one value or more, not {self.horizon}")

    @classmethod
    def at(cls, level: Level) -> LookPlan:
        """The plan itself; of an alpha alone, that without a horizon."""
        return level if isinstance(level, LookPlan) else cls(level)

    @property
    def of_both_ends(self) -> float:
        """Chance that either end misses the truth."""
        return 2 * self.alpha if self.one_sided and self.alpha < 0.5 else self.alpha


Level = float | LookPlan
"""At what a series is judged."""


def _growing(first: float) -> Iterator[int]:
    return (math.ceil(first * GROWTH**index - 1e-9) for index in count())


def looks(level: Level) -> Iterator[Look]:
    """The looks at a series judged at `level`, without end, from the first that can exclude anything.

    The signed-rank sums of successive looks are correlated as a random walk's positions are, so what a look spends is
    the chance to leave first there (Lan & DeMets 1983): integrated numerically, look by look, over where the walk may
    still be (Armitage, McPherson & Rowe 1969). Raises ValueError for an alpha outside (0, 1).
    """
    plan, index = LookPlan.at(level), 0
    while True:
        for look in _looks_until(plan, 8 * (index // 8 + 1))[index:]:
            yield look
            index += 1


@lru_cache(maxsize=256)
def _looks_until(plan: LookPlan, number: int) -> tuple[Look, ...]:
    """The first `number` looks."""
    if plan.early:
        critical = -normal_quantile(EARLY_SHARE * plan.of_both_ends / len(EARLY) / 2)
        first = tuple(Look(rounds, critical, 0, least) for rounds, least in EARLY)
        rest = replace(plan, alpha=(1 - EARLY_SHARE) * plan.alpha, early=False)
        return (*first, *_looks_until(rest, max(number - len(first), 0)))[:number]
    nodes, weights = np.polynomial.legendre.leggauss(96)  # on [-1, 1]
    result: list[Look] = []
    places, chances = np.zeros(1), np.ones(1)  # where the walk may be, with what probability
    for rounds, spend in _spending(plan):
        if len(result) == number:
            break
        step = math.sqrt(rounds - result[-1].rounds if result else rounds)
        critical = _critical(places, chances, step, rounds, spend)
        result.append(Look(rounds, critical, _rank(rounds, 2 * normal_chance(-critical))))
        border = critical * math.sqrt(rounds)
        next_places = border * nodes
        density = np.exp(-(((next_places[:, None] - places) / step) ** 2) / 2) / (step * math.sqrt(2 * math.pi))
        places, chances = next_places, (density @ chances) * weights * border
    return tuple(result)


def _spending(plan: LookPlan) -> Iterator[tuple[int, float]]:
    """Values of each look, and what it spends. Where all differences of one sign would not be rare enough to exclude
    anything there is none: with a horizon the next one spends for both, without one the first one starts later."""
    if plan.horizon is None:
        share = SPENT
        for rounds in _growing(FIRST_LOOK):
            if share < SPENT or 2.0 ** (1 - rounds) <= plan.of_both_ends * share:
                yield rounds, plan.of_both_ends * share
                share *= 1 - SPENT
        return
    spent = 0.0
    for rounds, due in _due(plan.of_both_ends, max(plan.horizon, FIRST_LOOK)):
        if 2.0 ** (1 - rounds) <= due - spent:
            yield rounds, due - spent
            spent = due


def _due(alpha: float, horizon: int) -> Iterator[tuple[int, float]]:
    """Values of each planned look, and what it and all before it may spend. None comes shortly before the horizon."""
    for rounds in takewhile(lambda rounds: rounds * (1 + GROWTH) / 2 <= horizon, _growing(FIRST_LOOK)):
        yield rounds, alpha * (1 - KEPT) * rounds / horizon
    kept = KEPT
    for rounds in _growing(horizon):
        yield rounds, alpha * (1 - kept)
        kept *= 1 - SPENT


def _critical(
    places: NDArray[np.float64], chances: NDArray[np.float64], step: float, rounds: int, spend: float
) -> float:
    """How far out (standard errors) a walk from `places` ends after `step` with probability `spend`."""

    def too_likely(errors: float) -> float:
        border = errors * math.sqrt(rounds)
        ends = np.concatenate([places - border, -border - places]) / step
        return float(normal_chances(ends).reshape(2, -1).sum(axis=0) @ chances) - spend

    return root(too_likely, 0.0, 40.0)


def _rank(rounds: int, spend: float) -> int:
    """Largest k for which the signed-rank sum of `rounds` lies below k with probability `spend` / 2 at most."""
    if rounds <= EXACT_ROUNDS:
        return int(np.searchsorted(_signed_rank_distribution(rounds), spend / 2, side="right"))
    deviation = math.sqrt(rounds * (rounds + 1) * (2 * rounds + 1) / 24)
    return math.floor(rounds * (rounds + 1) / 4 - 0.5 + normal_quantile(spend / 2) * deviation)


@lru_cache(maxsize=64)
def _signed_rank_distribution(rounds: int) -> NDArray[np.float64]:
    """P(sum of the ranks of positive differences <= 0, 1, 2, ...), each sign a coin flip."""
    chances = np.zeros(rounds * (rounds + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, rounds + 1):
        chances[rank:] += chances[:-rank].copy()
        chances /= 2
    return np.cumsum(chances)


def first_interval(level: Level) -> int:
    """Number of values from which there is an interval: 4 with early looks, else 12 at alpha = 0.01, 15 at 0.01/10.

    With a horizon too, if it is at most 221 values (one-sided: 442); then 15, up to a horizon of 2211."""
    return next(looks(level)).rounds


def next_look(rounds: int, level: Level) -> int:
    """Number of values of the first look that `rounds` have not reached."""
    return next(look.rounds for look in looks(level) if look.rounds > rounds)


def looks_reached(rounds: int, level: Level) -> list[Look]:
    """The looks that a series of so many rounds has had."""
    return list(takewhile(lambda look: look.rounds <= rounds, looks(level)))


def running_bounds(d: ArrayLike, level: Level) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the interval after every value of one series, each intersected with all before it: two arrays.

    Entry k is the interval after k+1 values, (-inf, inf) while they are too few; it changes at looks. low > high from
    some look on: see `Interval`. Raises ValueError as `running_interval` does.
    """
    series = _one_series(d, level)
    low, high = np.full(series.size, -np.inf), np.full(series.size, np.inf)
    for rounds, lowest, highest in _ends(series, level):
        low[rounds - 1], high[rounds - 1] = lowest, highest
    return np.maximum.accumulate(low), np.minimum.accumulate(high)


def running_interval(d: ArrayLike, level: Level) -> Interval:
    """The interval after all values of `d` (one series, log units), intersected over all looks that they reached.

    Raises ValueError for a NaN or infinite difference and for an alpha outside (0, 1).
    """
    series = _one_series(d, level)
    if not series.size:
        return Interval(math.nan, -math.inf, math.inf, 0)
    centre = pseudo_median(series)
    ends = _ends(series, level)
    low, high = max((low for _, low, _ in ends), default=-math.inf), min((high for *_, high in ends), default=math.inf)
    if low > high:
        return Interval(centre, *ends[-1][1:], series.size, unstable=True)
    return Interval(min(max(centre, low), high), low, high, series.size)


def pseudo_median(values: NDArray[np.float64]) -> float:
    """The median of the means of all pairs of values, each with itself too (Hodges & Lehmann)."""
    return float(np.median(_pair_means(values)))


def one_error(values: NDArray[np.float64]) -> float:
    """Standard error of a series' pseudo-median, from two values on: half the interval of the signed ranks that a
    normal mean leaves with its standard error. A few values far off hardly change it."""
    chance = 2 * normal_chance(-1.0)
    rank = max(_rank(values.size, chance), 1)
    means = np.partition(_pair_means(values), (rank - 1, -rank))
    # What the rank, a whole number, really spends.
    if values.size <= EXACT_ROUNDS:
        chance = 2 * float(_signed_rank_distribution(values.size)[rank - 1])
    return float(means[-rank] - means[rank - 1]) / 2 / student_quantile(values.size - 1, 1 - chance / 2)


def fixed_interval(values: ArrayLike, alpha: float) -> Interval:
    """Student's t interval for the mean of one series, whose number of values was fixed before any was seen.

    Not to be looked at again and again: what `running_interval` pays for, this does not have. One value has no interval
    (infinite ends). The centre of none is NaN. Raises ValueError as `running_interval` does.
    """
    series = _one_series(values, alpha)
    centre = float(series.mean()) if series.size else math.nan
    if series.size < 2:
        return Interval(centre, -math.inf, math.inf, series.size)
    error = float(series.std(ddof=1)) / math.sqrt(series.size)
    half = student_quantile(series.size - 1, 1 - alpha / 2) * error
    return Interval(centre, centre - half, centre + half, series.size)


def _ends(series: NDArray[np.float64], level: Level) -> list[tuple[int, float, float]]:
    """Values and ends of the interval of each look that the series reached."""
    return ends_of_looks(series, looks_reached(series.size, level))


def ends_of_looks(series: NDArray[np.float64], reached: Iterable[Look]) -> list[tuple[int, float, float]]:
    """The same of these looks."""
    return [(look.rounds, *_look_ends(series[: look.rounds], look)) for look in reached]


def _look_ends(values: NDArray[np.float64], look: Look) -> tuple[float, float]:
    if look.rank:
        return _signed_rank_ends(values.tobytes(), look.rank)
    centre, half = float(values.mean()), look.half_width(float(values.std(ddof=1)))
    return centre - half, centre + half


@lru_cache(maxsize=4096)  # the measuring loop asks again for the same look after each process
def _signed_rank_ends(values: bytes, rank: int) -> tuple[float, float]:
    means = _pair_means(np.frombuffer(values))
    ordered = np.partition(means, (rank - 1, means.size - rank))
    return float(ordered[rank - 1]) - RESOLUTION, float(ordered[-rank]) + RESOLUTION


def _pair_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    first, second = np.triu_indices(values.size)
    return (values[first] + values[second]) / 2


def _one_series(d: ArrayLike, level: Level) -> NDArray[np.float64]:
    LookPlan.at(level)  # raises
    series = np.asarray(d, dtype=np.float64)
    if series.ndim != 1:
        raise ValueError(f"one series is wanted, not an array of shape {series.shape}")
    if not np.isfinite(series).all():
        raise ValueError("a difference is NaN or infinite: leave out processes in which a side has no valid time")
    return series


# Do several series together show that their pairs of sides differ, where each alone is too short to?
# The sides of each series are the same code, so exchanging them would have been as likely: each value could have had
# the other sign. Values of one process may share what disturbed them; so they change signs together, and the test
# holds whatever they share.


@dataclass(frozen=True)
class EqualSides:
    """A series of log ratios of two equal sides. processes: of each value, the number of that which it is of."""

    processes: Sequence[int]
    values: NDArray[np.float64]


def chance_of_no_difference(series: Sequence[EqualSides]) -> float:
    """Chance that series of sides that do not differ lie as far from 0 as these do together.

    How far: the sum of the squared signed-rank sums, each over its variance. 1 where nothing can be said.
    """
    informative = [each for each in series if np.any(each.values)]
    if not informative:
        return 1.0
    places = {
        process: place
        for place, process in enumerate(dict.fromkeys(number for each in informative for number in each.processes))
    }
    ranks = [([places[process] for process in each.processes], _signed_ranks(each.values)) for each in informative]
    here, rng = _distance(ranks, np.ones((len(places), 1))), np.random.default_rng(0)
    as_far = 0
    for _ in range(CHUNKS):
        signs = rng.integers(0, 2, (len(places), A_CHUNK)).astype(np.float64) * 2 - 1
        as_far += int((_distance(ranks, signs) >= here - 1e-9).sum())
    return (1 + as_far) / (1 + CHUNKS * A_CHUNK)


def typical_difference(series: Sequence[EqualSides]) -> float:
    """Standard deviation (log units) of what is true of such series, beyond what their errors explain: by the method of
    moments, around 0 (DerSimonian & Laird 1986)."""
    long = [each.values for each in series if each.values.size > 1]
    errors = np.array([max(float(values.std(ddof=1)), RESOLUTION) / math.sqrt(values.size) for values in long])
    weighted = np.array([float(values.mean()) for values in long]) / errors
    return math.sqrt(max(float(weighted @ weighted) - len(long), 0.0) / float((errors**-2).sum())) if long else 0.0


def _signed_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The signed ranks of a series, over the root of the sum of their squares."""
    ranks = mid_ranks(np.abs(values)) * np.sign(values)
    return ranks / math.sqrt(ranks @ ranks)


def _distance(
    ranks: Sequence[tuple[list[int], NDArray[np.float64]]], signs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """One number for each column of signs, a row a process."""
    return np.sum([(entries @ signs[rows]) ** 2 for rows, entries in ranks], axis=0, dtype=np.float64)


# How many values a series will need until its interval answers a question: in nine of ten cases so many are enough.
# Nobody knows where the true effect lies, nor how much values vary: both are drawn from what the series leaves
# possible (normal values, flat priors: Student's t for the mean, chi-squared for the spread; Box & Tiao 1973). For
# each draw the series goes on at random to every planned look. The estimate alone would be right half of the time,
# and less where it lies near a limit.


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
