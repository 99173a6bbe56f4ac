"""Confidence sequences: intervals that may be looked at after every round.

A series d_1, d_2, ... holds one log ratio a round. An ordinary confidence interval is wrong for it, because the
measuring loop stops when the interval decides: the chance that *some* look misses the truth grows with every look.
A confidence sequence bounds exactly that chance: with probability at least 1 - alpha all intervals of the sequence
hold the truth, so stopping at any of them, for any reason, is sound, and so is intersecting them.

Two of them stand here. `t` is for the mean of roughly symmetric differences of unknown variance. `exact` is for their
median and assumes no shape at all; on normal differences it needs about 1.5 times the rounds. `both`, the default,
gives half of alpha to each and takes what both leave: coin-flip order makes mean and median of two equal sides the
same, and on a shared machine, where one call in ten takes half as long again, `exact` is the narrower one (240 rounds
of a 7 ms call: ±0.65 % against ±0.95 %). All assume that rounds are independent. Everything is in log units.

Where the number of rounds is fixed beforehand, so that nobody looks before the last, `fixed_interval` is narrower.
METHODOLOGY.md has simulated rates of misses, and the rounds that each takes.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

Method = Literal["both", "t", "exact"]

RESOLUTION = 1e-4
"""Least standard deviation (log units) that a series is credited with.

A sample lasts 0.2 ms or more and reading a clock is uncertain by some 20 ns, so one log ratio is not known better than
1e-4, however alike the readings look. Without the floor a series of equal differences would have an interval of width
nil after two rounds. Measured series have a standard deviation of 0.1 % and more, ten times the floor.
"""


@dataclass(frozen=True)
class Interval:
    """Where the true log ratio lies, after `n` rounds.

    `centre` is the mean (`exact`: the median) of all rounds, moved to the nearer end where it lies outside. `low` and
    `high` are infinite while the rounds are too few. `unstable` means that the intervals of different looks have no
    point in common: the effect moved while it was measured (or, for `both`, mean and median differ by more than their
    intervals allow). Then `low` and `high` are those of the last look alone (of `both`: by `t`, at its alpha/2).
    """

    centre: float
    low: float
    high: float
    n: int
    unstable: bool = False


@overload
def half_width(n: int, sd: float, alpha: float) -> float: ...
@overload
def half_width(n: ArrayLike, sd: ArrayLike, alpha: float) -> NDArray[np.float64]: ...


def half_width(n: ArrayLike, sd: ArrayLike, alpha: float) -> float | NDArray[np.float64]:
    """Half width of the `t` interval after `n` rounds with standard deviation `sd`; infinite for too few rounds.

    With a right-Haar prior on the scale and a normal prior N(0, g = 1) on mean/scale, the mixed likelihood ratio
    against the mean m is

        B_n(m) = (n+1)^(-1/2) * ((1 + u) / (1 + u/(n+1)))^(n/2),   u = n (mean - m)^2 / ((n-1) sd^2),

    a test martingale in the filtration of the scale-free data (Wang and Ramdas, "Anytime-valid t-tests and confidence
    sequences for Gaussian means with unknown variance", arXiv 2310.03722). By Ville's inequality B_n(truth) ever
    reaches 1/alpha with probability alpha at most. Solving B_n(m) = 1/alpha for |mean - m| gives, with
    K = ((n+1)^(1/2) / alpha)^(2/n), sd * sqrt((n-1)/n * (K-1) / (1 - K/(n+1))), unbounded if K >= n+1 (at
    alpha = 0.01: fewer than 6 rounds). `sd` is the sample standard deviation (divisor n-1). Broadcasts.
    """
    _check_alpha(alpha)
    rounds = np.asarray(n, dtype=np.float64)
    spread = np.asarray(sd, dtype=np.float64)
    if np.any(~(spread >= 0)):
        raise ValueError("a standard deviation must be 0 or more")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_k = (np.log1p(rounds) / 2 - math.log(alpha)) * 2 / rounds
        bounded = (rounds >= 2) & (log_k < np.log1p(rounds))
        u = np.expm1(log_k) / -np.expm1(log_k - np.log1p(rounds))
        factor = np.sqrt((rounds - 1) / rounds * u)
        width = np.where(bounded, spread * factor, np.inf)
    return float(width) if width.ndim == 0 else width


def first_look(alpha: float) -> int:
    """Number of rounds before which the `t` sequence says nothing: 5 + 1.5 log2(1/alpha), rounded up.

    That is 15 rounds at alpha = 0.01 and 24 at 0.01/60. In `both`, `t` has alpha/2 and starts at
    `first_look(alpha / 2)`, with 17 and 26; the signs need no such care and speak before (`first_interval`).

    The sequence is exact for normal differences and cautious for
    heavy tails, but not for light ones. Where the differences are +b or -b with hardly any noise (a call that is slower
    when it comes second, in rounds of a single pair), the first n rounds are all of one sign with probability
    2^(1-n), their spread is nil, and the formula calls that certain: looked at from the first round on, it misses with
    4 % where 1 % is promised, and with 0.45 % where 1/60 % is. Starting here it keeps the promise for b up to twice the
    noise, and misses up to twice as often as promised without any. Leaving looks out can never break a promise.
    """
    _check_alpha(alpha)
    return math.ceil(5 - 1.5 * math.log2(alpha))


def first_interval(alpha: float) -> int:
    """Number of rounds from which `both` gives an interval: that of the signs, all rounds' range, at alpha/2.

    12 rounds at alpha = 0.01, 18 at 0.01/60 and 20 at 0.01/200. It is wide, but clear of what lies far away.
    """
    _check_alpha(alpha)
    return _ranks(first_look(alpha / 2), alpha / 2).count(0) + 1


def running_bounds(
    d: ArrayLike, alpha: float, method: Method = "both"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the interval at every look, each intersected with all before it: two arrays of the shape of `d`.

    `d` has rounds along its last axis; leading axes are independent series. Entry k is the interval after k+1
    rounds, (-inf, inf) while they are too few. low > high from some look on: see `Interval`.
    Raises ValueError for a NaN or infinite difference.
    """
    low, high = _looks(_checked(d), alpha, method)
    return np.maximum.accumulate(low, axis=-1), np.minimum.accumulate(high, axis=-1)


def running_interval(d: ArrayLike, alpha: float, method: Method = "both") -> Interval:
    """The interval after all rounds of `d` (one series, log units), intersected over every look from the first on.

    Costs O(N), and for the signs N insertions into a sorted list: 0.4 ms for 300 rounds, so it can be called after
    each. Raises ValueError for
    a NaN or infinite difference and for an alpha outside (0, 1).
    """
    series = _one_series(d, alpha)
    if not series.size:
        return Interval(math.nan, -math.inf, math.inf, 0)
    lows, highs = _looks(series, alpha, method)
    low, high = float(lows.max()), float(highs.min())
    centre = float(np.median(series) if method == "exact" else series.mean())
    if low > high:
        if method == "both":
            lows, highs = _t_looks(series, alpha / 2)
        return Interval(centre, float(lows[-1]), float(highs[-1]), series.size, unstable=True)
    return Interval(min(max(centre, low), high), low, high, series.size)


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
    half = float(stdtrit(series.size - 1, 1 - alpha / 2)) * error
    return Interval(centre, centre - half, centre + half, series.size)


def _looks(series: NDArray[np.float64], alpha: float, method: Method) -> tuple[NDArray[np.float64], ...]:
    if method == "both":
        t_low, t_high = _t_looks(series, alpha / 2)
        sign_low, sign_high = _sign_looks(series, alpha / 2)
        return np.maximum(t_low, sign_low), np.minimum(t_high, sign_high)
    if method == "t":
        return _t_looks(series, alpha)
    if method == "exact":
        return _sign_looks(series, alpha)
    raise ValueError(f'method must be "both", "t" or "exact", not {method!r}')


def _t_looks(series: NDArray[np.float64], alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each look's own interval, all looks at once."""
    n = np.arange(1, series.shape[-1] + 1)
    # Sums of squares are taken about a point inside the data: about 0 they would cancel when the effect is large
    # and the spread is small.
    origin = series.mean(axis=-1, keepdims=True)
    centred = series - origin
    mean = np.cumsum(centred, axis=-1) / n
    squares = np.cumsum(centred**2, axis=-1) - n * mean**2
    sd = np.sqrt(np.maximum(squares, 0) / np.maximum(n - 1, 1))
    half = half_width(n, np.maximum(sd, RESOLUTION), alpha)
    half[..., : first_look(alpha) - 1] = np.inf
    mean = mean + origin
    return mean - half, mean + half


def _sign_looks(series: NDArray[np.float64], alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each look's own interval for the median, from the signs of d - m alone.

    Derivation. Let m be the median and S = #(d_i > m) after n rounds. If neither "above" nor "below" has a chance of
    more than 1/2 given the past, then for every p in [1/2, 1] the product of 2p (above) and 2(1-p) (not above) is a
    test supermartingale, and so is its average over p uniform on [1/2, 1], E(S). The same holds for the rounds below.
    Ville's inequality at alpha/2 each rejects m once E(#above) >= 2/alpha or E(#below) >= 2/alpha. Averaged over
    [0, 1] instead, the product has the closed form F(s) = 2^n s! (n-s)! / (n+1)! = (E(s) + E(n-s)) / 2 (the uniform,
    that is Beta(1, 1), case of the beta-binomial mixture: Ville 1939, Robbins 1970; for quantiles Howard and Ramdas,
    "Sequential estimation of quantiles", Bernoulli 2022). E(s) <= 1 where s <= n/2, so F(s) >= 1/alpha + 1/2 implies
    E(max(s, n-s)) >= 2/alpha. With k_n the largest k <= n/2 with F(k) >= 1/alpha + 1/2, every m above the (k_n+1)th
    largest difference has n - k_n or more rounds below it and is rejected, and likewise at the other end: the
    interval runs from the (k_n+1)th smallest to the (k_n+1)th largest. Ties need no special care.

    Why it holds here: both orders of a pair are equally likely by the coin flip, so with two identical sides every
    difference is above or below 0 with the same chance, whatever the noise does.
    """
    ranks = _ranks(series.shape[-1], alpha)
    silent = ranks.count(0)
    rows = series.reshape(math.prod(series.shape[:-1]), len(ranks))
    low, high = np.full(rows.shape, -np.inf), np.full(rows.shape, np.inf)
    for index, row in enumerate(rows.tolist()):
        ordered = sorted(row[:silent])
        lowest, highest = [], []
        for value, rank in zip(row[silent:], ranks[silent:], strict=True):
            insort(ordered, value)
            lowest.append(ordered[rank - 1])
            highest.append(ordered[-rank])
        low[index, silent:], high[index, silent:] = lowest, highest
    # Clock resolution, as for the other sequence: equal differences do not make an interval of width nil.
    return (low - RESOLUTION).reshape(series.shape), (high + RESOLUTION).reshape(series.shape)


def _ranks(rounds: int, alpha: float) -> list[int]:
    """k_n + 1 for n = 1 to `rounds`: how many differences lie outside at either end; 0 while there is no interval."""
    _check_alpha(alpha)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, rounds + 2)))]).tolist()
    threshold = math.log(1 / alpha + 0.5)
    ranks, rank = [], 0  # it never falls with n
    for n in range(1, rounds + 1):
        while (
            2 * rank <= n
            and n * math.log(2) + log_factorial[rank] + log_factorial[n - rank] - log_factorial[n + 1] >= threshold
        ):
            rank += 1
        ranks.append(rank)
    return ranks


def _checked(d: ArrayLike) -> NDArray[np.float64]:
    series = np.asarray(d, dtype=np.float64)
    if not np.isfinite(series).all():
        raise ValueError("a difference is NaN or infinite: leave out rounds in which a side has no valid time")
    return series


def _one_series(d: ArrayLike, alpha: float) -> NDArray[np.float64]:
    _check_alpha(alpha)
    series = _checked(d)
    if series.ndim != 1:
        raise ValueError(f"one series is wanted, not an array of shape {series.shape}")
    return series


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, not {alpha}")
