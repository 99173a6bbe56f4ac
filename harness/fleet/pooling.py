"""One effect by machine kind and over machines, as machines.json has it: the mean over those that measured, how much
they differ, and what to expect of others. Pure functions.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..evidence.numbers import exp
from ..spec.words import SETTLED, Word
from ..stats.confidence import looks_reached
from ..stats.distributions import student_quantile
from ..stats.means import CentredInterval, Mean, between_variance, scatter
from ..store.machine_schema import General, OfKind, Pooled
from ..store.verdict_schema import Effect

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


# -- of effects -------------------------------------------------------------------------------------------------------

OnMachines = Sequence[tuple[str, Effect]]
"""One effect on several machines, each with the machine's name."""


def ends_of(effect: Effect) -> CentredInterval:
    """Its interval: of log ratios, or of values."""
    if effect.unit:
        return CentredInterval(effect.ratio, effect.low, effect.high)
    low = math.log(effect.low) if effect.low > 0 else -math.inf
    return CentredInterval(math.log(effect.ratio), low, math.log(effect.high))


def pooled(by_kind: Mapping[str, OnMachines], alpha: float, *, looks_once: bool) -> dict[str, Any]:
    """The fields of OverMachines that are computed from one effect: kinds, mean, spread and general."""
    effects = [effect for each in by_kind.values() for _, effect in each]
    is_ratio = not effects[0].unit
    of_kinds = {kind: mean_of([ends_of(effect) for _, effect in each]) for kind, each in by_kind.items()}
    kinds = tuple(
        OfKind(
            kind=kind,
            machines=tuple(name for name, _ in each),
            rounds=sum(effect.rounds for _, effect in each),
            verdict=_word([effect.verdict for _, effect in each]),
            **_shown(of_kinds[kind], is_ratio),
        )
        for kind, each in by_kind.items()
    )
    several = len(effects) > 1
    return {
        "kinds": kinds,
        "mean": Pooled(**_shown(mean_of([ends_of(effect) for effect in effects]), is_ratio)) if several else None,
        "spread": _spread(effects, alpha, looks_once) if several else math.nan,
        "general": _general(by_kind, of_kinds, alpha, looks_once),
    }


def _word(verdicts: Sequence[Word]) -> Word:
    """What machines of one kind say together: what they all say; else they are open, or depend."""
    words = set(verdicts)
    if len(words) == 1:
        return verdicts[0]
    return Word.DEPENDS if len(words & {*SETTLED}) > 1 else Word.INCONCLUSIVE


def _shown(ends: CentredInterval, is_ratio: bool) -> dict[str, float]:
    """An interval as a file has it: a ratio is never 0 there, and what is open is infinite."""
    if not is_ratio:
        return {"ratio": ends.centre, "low": ends.low, "high": ends.high}
    low = exp(ends.low) if math.isfinite(ends.low) else -math.inf
    return {"ratio": exp(ends.centre), "low": low, "high": exp(ends.high)}


def _error(effect: Effect, alpha: float, looks_once: bool) -> float:
    """Standard error of its centre, from the width of its interval; infinite where that is open."""
    ends = ends_of(effect)
    half = (ends.high - ends.low) / 2
    if not math.isfinite(half):
        return math.inf
    if looks_once:
        return half / student_quantile(effect.rounds - 1, 1 - alpha / 2) if effect.rounds > 1 else half
    reached = looks_reached(effect.rounds, effect.plan(alpha))
    return half / (reached[-1].half_width(1.0) * math.sqrt(reached[-1].rounds)) if reached else half


def _spread(effects: Sequence[Effect], alpha: float, looks_once: bool) -> float:
    """Standard deviation between machines, beyond what the errors explain; NaN where one has no interval."""
    errors = [_error(effect, alpha, looks_once) for effect in effects]
    centres = [ends_of(effect).centre for effect in effects]
    if not all(map(math.isfinite, errors)):
        return math.nan
    if not all(errors):  # counted, not estimated
        return float(np.std(centres, ddof=1))
    return math.sqrt(between_variance(centres, errors))


def _general(
    by_kind: Mapping[str, OnMachines], of_kinds: Mapping[str, CentredInterval], alpha: float, looks_once: bool
) -> General | None:
    """Machines in general, a kind of them being one draw; None where there are too few kinds, or one has no error."""
    errors = [
        math.hypot(*(_error(effect, alpha, looks_once) for _, effect in each)) / len(each) for each in by_kind.values()
    ]
    if len(by_kind) < LEAST_KINDS or not all(0 < error < math.inf for error in errors):
        return None
    effect = next(iter(by_kind.values()))[0][1]
    drawn = random_effects([ends.centre for ends in of_kinds.values()], errors, alpha)
    next_ = _shown(drawn.one_more, not effect.unit)
    return General(**_shown(drawn.mean, not effect.unit), next_low=next_["low"], next_high=next_["high"])
