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
from ..spec.experiments import Contrast, Experiment, Target
from ..spec.regions import Region
from ..spec.sample import Round
from ..stats.confidence import Interval, first_interval, next_look, running_interval
from ..stats.samples import Clocks, differences, log_times_of_round, whole_rounds
from .verdicts import shared_alpha

PRECISION = 0.03
"""A settled effect goes on until its interval is at most this far (log units) to either side: a verdict alone, "not
2-3x", would otherwise come with an interval too wide to be worth reading ..."""

ENOUGH_ROUNDS = 24
"""... or until it had this many rounds."""

CONTROL_PRECISION = 0.02
"""Identical copy and yardstick ride along until they are known this well; the A/A control always does."""


class StoppingRule:
    """Settles effects by the intervals that will judge them, after every round."""

    def __init__(self, experiments: Sequence[Experiment], clocks: Clocks, alpha: float) -> None:
        """`alpha`: chance that a verdict is wrong."""
        self.alpha = alpha
        self.clocks = clocks
        self.series: dict[Comparison, list[float]] = {}
        self.pairs: dict[str, list[Comparison]] = {}
        self.parts: dict[str, list[Target]] = {}
        self.grids: dict[str, tuple[tuple[str, ...], list[NDArray[np.float64]]]] = {}  # cells, rounds of log times
        self.intervals: dict[tuple[Comparison, float], Interval] = {}
        for experiment in experiments:
            workload = experiment.workload.name
            pairs = [target.comparison for target in experiment.targets]
            pairs += [_control_pair(name, experiment) for name in experiment.controls]
            self.pairs[workload] = list(dict.fromkeys(pairs))
            for target in experiment.targets:
                self.parts.setdefault(target.part, []).append(target)
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
        left = {target: self._rounds_left(target) for target in experiment.targets}
        waiting = {target.comparison: rounds for target, rounds in left.items() if rounds}
        _, logs = self.grids.get(experiment.workload.name, ((), []))
        alpha_of_grid = self.alpha / max(len(experiment.contrasts), 1)
        open_ = open_contrasts(experiment.contrasts, logs, alpha=alpha_of_grid)
        rounds = [each for each in left.values() if each]
        rounds += [
            max(rounds_needed(values, contrast.region, alpha=alpha_of_grid), next_look(len(values), alpha_of_grid))
            - len(values)
            for contrast, values in open_
        ]
        if not rounds:
            return Remaining((), False, 0.0, 0.0)
        counts = [len(self.series.get(pair, [])) for pair in waiting] + [len(values) for _, values in open_]
        missing = first_interval(self.alpha) - min(counts)
        pairs = list(waiting)
        for name in experiment.controls:
            pair = _control_pair(name, experiment)
            if name.endswith("@aa") or not _is_known(self._interval(pair, ALPHA), CONTROL_PRECISION):
                pairs.append(pair)
        wanted = {name for pair in pairs for name in (pair.baseline, pair.variant)}
        wanted |= set(experiment.grid) if open_ else set()
        participants = tuple(name for name in experiment.entered() if name in wanted)
        # Before there is an interval its spread says nothing on what it will settle, and may not keep it waiting.
        settles = float(missing) if missing > 0 else min(rounds)
        headline = any(target.headline for target, needed in left.items() if needed)
        return Remaining(participants, missing > 0, settles, max(rounds), len(rounds), headline)

    def alpha_of(self, part: str) -> float:
        """What the effects of a part are judged at: they share alpha once they lie on different sides."""
        targets = self.parts[part]
        alpha = self.alpha / targets[0].at_once
        answers = {_answer(self._interval(target.comparison, alpha), target.regions) for target in targets}
        return shared_alpha(alpha, len(targets)) if len(answers - {None}) > 1 else alpha

    def _rounds_left(self, target: Target) -> float:
        """Rounds until the effect is settled and known well enough, those of a look; a guess at first, 0 when it is."""
        alpha, values = self.alpha_of(target.part), self.series.get(target.comparison, [])
        interval = self._interval(target.comparison, alpha)
        if _answer(interval, target.regions) is None:
            needed = min(rounds_needed(values, region, alpha=alpha) for region in target.regions)
        elif _is_known(interval, PRECISION):
            return 0.0
        else:
            half = (interval.high - interval.low) / 2
            needed = min(len(values) * (half / PRECISION) ** 2, ENOUGH_ROUNDS)
        until_look = next_look(len(values), alpha) - len(values)
        return until_look if len(values) < 2 else max(needed - len(values), until_look)

    def _interval(self, pair: Comparison, alpha: float) -> Interval:
        values = self.series.get(pair, [])
        known = self.intervals.get((pair, alpha))
        if known is None or known.n != len(values):
            known = self.intervals[pair, alpha] = running_interval(values, alpha)
        return known


def _answer(interval: Interval, regions: Sequence[Region]) -> tuple[int, bool] | None:
    """The first of the regions about which the interval decides, and whether it holds the interval."""
    for number, region in enumerate(regions):
        if decided(interval, region):
            return number, region.contains(interval.low, interval.high)
    return None


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
