"""Does what one layer shows hold for the whole model? Workloads in pairs that differ in the number of layers alone.

Of a pair either the gain of a variant is compared, or the variant's time: that of the whole with that of the part times
the number of layers. A gain is a ratio within rounds, on both sides. Times of two models come from processes of their
own, at different moments of the run, so that a change of the machine's speed meanwhile is in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from ..evidence.effect import DEPENDENT
from ..evidence.evidence import Evidence
from ..evidence.numbers import exp
from ..evidence.verdict import reasons
from ..spec.comparison import Comparison
from ..spec.experiments import Target
from ..spec.hypotheses import Names
from ..spec.words import Cause, Word
from ..stats.confidence import Interval, running_interval
from ..stats.dependence import is_dependent
from ..stats.samples import time_differences
from ..store.verdict_schema import Effect
from .base import GainHypothesis, Judged, Metric, in_range, measured_gains, no_value
from .scaling import interval_of


class LayersHypothesis(GainHypothesis):
    """The `quantity` of the whole model in percent of what its part leads one to expect, on each two of `workloads`
    whose names differ in the geometry alone. "time" is the variant's; the baseline is what it is timed beside."""

    least_workloads = 2

    metric: Literal["layers"]
    quantity: Annotated[Literal["gain", "time"], Field(description='"gain" or "time"')]
    workloads: Annotated[Names, Field(min_length=2, description="a list of two or more names without repeats")]

    def targets(self) -> Iterator[Target]:
        return (replace(target, at_once=2) for target in super().targets())


class LayersMetric(Metric[LayersHypothesis]):
    """Computed from timed effects; there is no pass."""

    names = ("layers",)
    about = "A gain, or a time, of the whole model in percent of what one of its layers leads one to expect."
    page = "scaling"
    inside = "workloads"
    hypothesis = LayersHypothesis

    def judge(self, hypothesis: LayersHypothesis, evidence: Evidence, *, alpha: float) -> Judged:
        """One verdict from all pairs; what there is no room for on this machine is left out and named."""
        pairs: dict[str, list[str]] = {}
        for name in filter(evidence.geometries.__contains__, hypothesis.workloads):
            pairs.setdefault(name.replace(evidence.geometries[name], "", 1), []).append(name)
        effects = [_effect(hypothesis, evidence, pair, alpha) for pair in pairs.values() if len(pair) == 2]
        if not effects:
            return Judged(Word.NOT_MEASURABLE, "this run lacks some of its workloads")
        counted = [effect for effect in effects if effect.verdict != Word.NOT_MEASURABLE]
        missing = reasons([effect for effect in effects if effect not in counted]) if counted != effects else ""
        if not counted:
            return Judged(Word.NOT_MEASURABLE, missing, tuple(effects))
        return Judged.of_all(effects, counted, f"; not measured: {missing}" if missing else "")


def _effect(hypothesis: LayersHypothesis, evidence: Evidence, pair: Sequence[str], alpha: float) -> Effect:
    """The whole against its part on two workloads, whichever is which."""
    part, whole = sorted(pair, key=lambda name: evidence.layers.get(name, math.inf))
    empty = no_value(hypothesis, f"{part} to {whole}", f"{hypothesis.quantity} of the whole by that of the part")
    if reason := next((said for name in pair if (said := evidence.unusable.get((name, hypothesis.variant)))), ""):
        return replace(empty, cause=Cause.EXCLUDED, reason=reason)
    gains = measured_gains(
        (Comparison(name, hypothesis.variant, hypothesis.baseline) for name in (part, whole)), evidence, alpha=alpha / 2
    )
    if isinstance(gains, Judged):
        return replace(empty, verdict=gains.verdict, cause=Cause.TOO_FEW_ROUNDS, reason=gains.reason)
    if hypothesis.quantity == "gain":
        part_gain, whole_gain = map(interval_of, gains)
        log = Interval(
            whole_gain.centre - part_gain.centre,
            whole_gain.low - part_gain.high,
            whole_gain.high - part_gain.low,
            min(part_gain.n, whole_gain.n),
        )
    else:
        name = hypothesis.variant
        of_part, of_whole = (time_differences(evidence.times(each, name), variant=name) for each in (part, whole))
        rounds, calls = min(len(of_part), len(of_whole)), evidence.layers[whole] / evidence.layers[part]
        logs = np.log(of_whole[:rounds] / of_part[:rounds] / calls)
        if evidence.design.lives and is_dependent(logs):
            return replace(empty, verdict=Word.INCONCLUSIVE, cause=Cause.DEPENDENT, reason=DEPENDENT)
        log = running_interval(logs, alpha)
    ratio, low, high = (100 * exp(end) for end in (log.centre, log.low, log.high))
    seconds = sum(gain.seconds for gain in gains)
    return in_range(replace(empty, ratio=ratio, low=low, high=high, rounds=log.n, seconds=seconds), hypothesis)


METRIC = LayersMetric()
