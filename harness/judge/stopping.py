"""When to stop: what each workload still needs until its effects are settled, by the rules that will judge them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..evidence.effect import ALPHA, decided, rounds_needed
from ..measure.measurement import Remaining
from ..spec.comparison import Comparison, Metric
from ..spec.experiments import Contrast, Experiment
from ..spec.regions import Region
from ..spec.sample import Round
from ..stats.confidence import Interval, first_interval, next_look, running_interval
from ..stats.samples import Clocks, differences, log_times_of_round, whole_rounds

PRECISION = 0.03
"""A settled effect goes on until its interval is at most this far (log units) to either side: a verdict alone, "not
2-3x", would otherwise come with an interval too wide to be worth reading ..."""

ENOUGH_ROUNDS = 24
"""... or until it had this many rounds."""

CONTROL_PRECISION = 0.02
"""Identical copy and yardstick ride along until they are known this well; the A/A control always does."""


class StoppingRule:
    """Settles effects by the confidence sequence that will judge them, after every round."""

    def __init__(self, experiments: Sequence[Experiment], clocks: Clocks, alpha: float) -> None:
        """`alpha`: what each effect of the report is judged at."""
        self.alpha = alpha
        self.clocks = clocks
        self.series: dict[Comparison, list[float]] = {}
        self.pairs: dict[str, list[Comparison]] = {}
        self.grids: dict[str, tuple[tuple[str, ...], list[NDArray[np.float64]]]] = {}  # cells, rounds of log times
        for experiment in experiments:
            workload = experiment.workload.name
            pairs = [target.comparison for target in experiment.targets]
            pairs += [_control_pair(name, experiment) for name in experiment.controls]
            self.pairs[workload] = list(dict.fromkeys(pairs))
            if experiment.grid:
                self.grids[workload] = experiment.grid, []

    def add(self, finished: Round) -> None:
        """Take a finished round in."""
        arrays: dict[tuple[Any, Metric], Any] = {}
        for pair in self.pairs[finished.workload]:
            key = self.clocks.of(pair.workload, pair.variant, pair.baseline), pair.metric
            if key not in arrays:
                arrays[key] = log_times_of_round(finished, clock=key[0], metric=key[1])
            values = differences(arrays[key], baseline=pair.baseline, variant=pair.variant).values
            self.series.setdefault(pair, []).extend(values.tolist())
        if finished.workload in self.grids:
            cells, logs = self.grids[finished.workload]
            times = log_times_of_round(finished, clock=self.clocks.of(finished.workload, *cells))
            logs.extend(whole_rounds(times.of(cells)).logs)

    def ratios(self) -> dict[Comparison, float]:
        """t_baseline / t_variant of every comparison that has rounds: the median over them."""
        return {pair: math.exp(float(np.median(values))) for pair, values in self.series.items() if values}

    def remaining(self, experiment: Experiment) -> Remaining:
        """What the experiment still needs."""
        waiting = [target for target in experiment.targets if not self._is_settled(target.comparison, target.region)]
        _, logs = self.grids.get(experiment.workload.name, ((), []))
        open_ = open_contrasts(experiment.contrasts, logs, alpha=self.alpha)
        rounds = [self._rounds_left(self.series.get(each.comparison, []), each.region) for each in waiting]
        rounds += [self._rounds_left(values, contrast.region) for contrast, values in open_]
        if not rounds:
            return Remaining((), False, 0.0, 0.0)
        pairs = [target.comparison for target in waiting]
        counts = [len(self.series.get(pair, [])) for pair in pairs] + [len(values) for _, values in open_]
        missing = first_interval(self.alpha) - min(counts)
        for name in experiment.controls:
            pair = _control_pair(name, experiment)
            interval = running_interval(self.series.get(pair, []), ALPHA)
            if name.endswith("@aa") or not _is_known(interval, CONTROL_PRECISION):
                pairs.append(pair)
        wanted = {name for pair in pairs for name in (pair.baseline, pair.variant)}
        wanted |= set(experiment.grid) if open_ else set()
        participants = tuple(name for name in experiment.entered() if name in wanted)
        # Before there is an interval its spread says nothing on what it will settle, and may not keep it waiting.
        settles = float(missing) if missing > 0 else min(rounds)
        return Remaining(participants, missing > 0, settles, max(rounds), len(rounds))

    def _rounds_left(self, values: Sequence[float] | NDArray[np.float64], region: Region) -> float:
        """Rounds until the effect is clear of the region's boundary and known well enough; a guess at first."""
        until_look = next_look(len(values), self.alpha) - len(values)
        if len(values) < 2:
            return until_look
        interval = running_interval(values, self.alpha)
        if not decided(interval, region):
            return max(rounds_needed(values, region, alpha=self.alpha) - len(values), until_look)
        half = (interval.high - interval.low) / 2
        until_known = min(len(values) * ((half / PRECISION) ** 2 - 1), ENOUGH_ROUNDS - len(values))
        return max(until_known, until_look)

    def _is_settled(self, pair: Comparison, region: Region) -> bool:
        interval = running_interval(self.series.get(pair, []), self.alpha)
        return decided(interval, region) and _is_known(interval, PRECISION)


def open_contrasts(
    contrasts: Sequence[Contrast], logs: ArrayLike, *, alpha: float
) -> list[tuple[Contrast, NDArray[np.float64]]]:
    """The contrasts that the rounds so far do not settle, with one value a round; `logs` [rounds, cells] of a call."""
    open_ = []
    for contrast in contrasts:
        values = -np.reshape(np.asarray(logs, dtype=np.float64), (-1, len(contrast.cells))) @ contrast.weights
        if not decided(running_interval(values, alpha), contrast.region):
            open_.append((contrast, values))
    return open_


def _is_known(interval: Interval, precision: float) -> bool:
    return (interval.high - interval.low) / 2 <= precision or interval.n >= ENOUGH_ROUNDS


def _control_pair(name: str, experiment: Experiment) -> Comparison:
    """What a control is measured against: `NAME@aa` with NAME, the yardstick with the experiment's baseline."""
    original, _, control = name.partition("@")
    return Comparison(experiment.workload.name, name, original if control else experiment.baseline)
