"""When to stop: what each workload still needs until its effects are settled, by the rules that will judge them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llama_workbench.variants import FUNCTION_REFERENCE, REFERENCE_BENCHMARKS

from ..evidence.effect import ALPHA, FAULT_COST_NS, NO_STRETCH, Stretch, decided, fault_stretch, rounds_needed
from ..evidence.evidence import Design
from ..measure.choosing import Remaining, Wait, WaitsFor
from ..spec.comparison import AA, COPY, Comparison, EnteredName, Metric
from ..spec.experiments import Contrast, Experiment, Target
from ..spec.regions import Region
from ..spec.sample import Round
from ..stats.confidence import FIRST_LOOK, Interval, Level, LookPlan, first_interval, next_look, running_interval
from ..stats.samples import Clocks, Differences, differences, log_times_of_rounds, whole_processes
from .parts import shared_alpha

ENOUGH_ROUNDS, ENOUGH_OF_QUESTIONS = 24, 60
"""A settled effect goes on until its interval is narrow enough (`Target.precision`), or it had so many rounds."""

CONTROL_PRECISION, REFERENCE_PRECISION = 0.02, 0.01
"""Identical copy and reference benchmark take part until they are known this well; the A/A control always does in
rounds of many variants. By the reference benchmark saved runs are compared, which are to tell 5 % more time from
none. That of functions takes part in one round of a process: another one tells more than another round."""

PROCESSES_OF_CONTROL = 4
"""In one of so many rounds of a pair that is measured apart the A/A control has a part, in another the reference
benchmark."""

Apart = Callable[[Comparison], bool]
"""Whether a pair is measured alone."""


class StoppingRule:
    """Settles effects by the intervals that will judge them, after every process."""

    def __init__(
        self,
        experiments: Sequence[Experiment],
        clocks: Clocks,
        alpha: float,
        fault_cost_ns: float = FAULT_COST_NS,
        design: Design | None = None,
        *,
        to_compare: bool = False,
        is_saved: bool = True,
    ) -> None:
        """`alpha`: chance of a wrong verdict. `fault_cost_ns`: at most, as the judge takes it, of a page fault that
        is no part of what is measured. `design`: of the series, as the run's manifest says it. `to_compare`: whether
        times relative to the reference benchmark are wanted within REFERENCE_PRECISION, for saved runs are compared
        by them. `is_saved`: whether the run may be compared with others later; else the reference benchmark has no
        part in it."""
        self.alpha, self.to_compare = alpha, to_compare
        self.left_out = () if is_saved else REFERENCE_BENCHMARKS
        self.clocks = clocks
        self.fault_cost_ns = {one.workload.name: one.workload.calm * fault_cost_ns for one in experiments}
        self.design = design or Design()
        self.open_processes = OpenProcesses()
        self.series: dict[Comparison, list[float]] = {}  # one log ratio a process
        self.found: dict[Comparison, list[Differences]] = {}
        self.pairs: dict[str, list[Comparison]] = {}
        self.parts: dict[str, list[Target]] = {}
        self.grids: dict[
            str, tuple[Experiment, list[NDArray[np.float64]]]
        ] = {}  # and a row of log times of its cells a process
        self.intervals: dict[tuple[Comparison, LookPlan], Interval] = {}
        self.stretches: dict[Comparison, tuple[int, Stretch]] = {}  # after how many rounds
        for experiment in experiments:
            workload = experiment.workload.name
            pairs = [target.comparison for target in experiment.targets]
            pairs += [experiment.control_pair(name) for name in experiment.controls]
            self.pairs[workload] = list(dict.fromkeys(pairs))
            for target in experiment.targets:
                self.parts.setdefault(target.part, []).append(target)
            if experiment.grid:
                self.grids[workload] = experiment, []
        names = [EnteredName(name) for experiment in experiments for name in experiment.controls]
        self.controls = max(sum(name.is_control for name in names), 1)

    def add(self, finished: Round) -> None:
        """Take a finished round in. The rounds of a process count once it is over."""
        for taken in self.open_processes.add(finished):
            self._count(taken)

    def end_process(self, process: int | None = None) -> None:
        """This process is over (without a number: each of them), and what its rounds gave counts."""
        for taken in self.open_processes.end(process):
            self._count(taken)

    def _count(self, taken: Sequence[Round]) -> None:
        """One more value of each pair that was timed in these rounds of one workload."""
        workload = taken[0].workload
        quantile = self.design.quantile(workload)
        arrays: dict[tuple[Any, Metric], Any] = {}
        for pair in self.pairs[workload]:
            key = self.clocks.of(workload, pair.variant, pair.baseline), pair.metric
            if key not in arrays:
                arrays[key] = log_times_of_rounds(taken, clock=key[0], metric=key[1], quantile=quantile)
            of_pair = differences(arrays[key], baseline=pair.baseline, variant=pair.variant)
            self.series.setdefault(pair, []).extend(of_pair.values.tolist())
            if of_pair.values.size:
                self.found.setdefault(pair, []).append(of_pair)
        if workload in self.grids:
            experiment, logs = self.grids[workload]
            times = log_times_of_rounds(taken, clock=self.clocks.of(workload, *experiment.grid), quantile=quantile)
            logs.extend(whole_processes(times.of(experiment.grid)).logs)

    def remaining(self, experiment: Experiment, is_apart: Apart) -> list[Remaining]:
        """What the experiment still needs: all that is measured together first, then each pair that is measured apart.
        `is_apart`: whether a pair is."""
        left = {target: rounds for target in experiment.targets if (rounds := self._rounds_left(target))}
        together = {target: rounds for target, rounds in left.items() if not is_apart(target.comparison)}
        apart: dict[Comparison, dict[Target, float]] = {}
        for target, rounds in left.items():
            if target not in together:
                apart.setdefault(target.comparison, {})[target] = rounds
        pairs = [self._apart(experiment, pair, of_pair, is_apart) for pair, of_pair in apart.items()]
        open_ = [*self._together(experiment, together), *pairs] or list(_controls_left(self, experiment, is_apart))
        return open_ or list(_relative_left(self, experiment))

    def _apart(
        self, experiment: Experiment, pair: Comparison, left: Mapping[Target, float], is_apart: Apart
    ) -> Remaining:
        """What the effects of one pair still need, with its controls until they are known, one after the other as its
        third side."""
        missing = max(self._missing(pair, self.alpha_of(target.part)) for target in left)
        had = len(self.series.get(pair, []))
        return Remaining(
            (pair.baseline, pair.variant, *_riding(self, experiment, pair, is_apart)),
            missing > 0,
            # Before there is an interval its spread says nothing on what it will settle, and may not keep it waiting.
            float(missing) if missing > 0 else min(left.values()),
            max(left.values()),
            len(left),
            any(target.headline for target in left),
            pair,
            self._verdicts(left),
            had if any(target.question for target in left) else None,
            had,
        )

    def _verdicts(self, left: Collection[Target]) -> tuple[WaitsFor, ...]:
        """For each verdict that waits for one of these effects: all that it waits for. These are all its open effects;
        or, where its effects lie on different sides, so that the part depends, one on each side: which others there
        are changes nothing."""
        waits = []
        for part in dict.fromkeys(target.part for target in left):
            targets, alpha = self.parts[part], self.alpha_of(part)
            first = self._answers(targets, self.alpha / targets[0].at_once)
            now = self._answers(targets, alpha)
            if len({*first.values()} - {None}) < 2:
                open_ = [each for each in targets if now[each] is None]
            else:
                settled = {*now.values()} - {None}
                soonest = sorted(targets, key=self._rounds_left)
                open_ = [
                    next(each for each in soonest if first[each] == answer)
                    for answer in {*first.values()} - {None} - settled
                ]
            if any(each in open_ for each in left):
                waits.append(tuple(map(self._wait, open_)))
        return tuple(waits)

    def _wait(self, target: Target) -> Wait:
        done = len(self.series.get(target.comparison, []))
        return Wait(target.comparison, self._rounds_left(target), done, target.headline)

    def _answers(self, targets: Iterable[Target], alpha: float) -> dict[Target, tuple[int, bool] | None]:
        return {each: self._answer(each, alpha) for each in targets}

    def _answer(self, target: Target, alpha: float) -> tuple[int, bool] | None:
        """The first of the regions about which the interval decides, and whether it holds the interval."""
        stretch = self._stretch(target.comparison)
        for number, region in enumerate(target.regions):
            interval = self._interval(target.comparison, alpha, region)
            inside = region.contains(interval.low, interval.high)
            if decided(interval, region, stretch) and (inside or not region.only_inside):
                return number, inside
        return None

    def _stretch(self, pair: Comparison) -> Stretch:
        """What page faults may have done so far: an effect that they could turn is not settled yet."""
        rounds = self.found.get(pair, [])
        count, stretch = self.stretches.get(pair, (0, NO_STRETCH))
        if count < len(rounds):
            together = replace(
                rounds[-1],
                faults_baseline=float(np.mean([each.faults_baseline for each in rounds])),
                faults_variant=float(np.mean([each.faults_variant for each in rounds])),
                call_baseline_ns=float(np.median([each.call_baseline_ns for each in rounds])),
                call_variant_ns=float(np.median([each.call_variant_ns for each in rounds])),
            )
            stretch = fault_stretch(together, self.fault_cost_ns[pair.workload])
            self.stretches[pair] = len(rounds), stretch
        return stretch

    def _missing(self, pair: Comparison, alpha: float) -> int:
        """Rounds until the pair has its first interval at this level."""
        return first_interval(self.design.plan(pair.workload, alpha)) - len(self.series.get(pair, []))

    def _together(self, experiment: Experiment, left: Mapping[Target, float]) -> Iterator[Remaining]:
        """What these effects, and contrasts of many variants, still need in rounds of all of them."""
        open_ = self._open_contrasts(experiment)
        rounds = [*left.values(), *(needed for _, needed in open_)]
        if not rounds:
            return
        lacking = [self._missing(target.comparison, self.alpha_of(target.part)) for target in left]
        lacking += [first_interval(self._plan_of_grid(experiment)) - had for had, _ in open_]
        missing = max(lacking)
        pairs = list(dict.fromkeys(target.comparison for target in left))
        for name in (name for name in experiment.controls if name not in self.left_out):
            pair = experiment.control_pair(name)
            done = name == FUNCTION_REFERENCE and self.open_processes.had(pair.workload, name)
            if EnteredName(name).control == AA or not (done or _control_is_known(pair, self._interval(pair, ALPHA))):
                pairs.append(pair)
        wanted = {name for pair in pairs for name in (pair.baseline, pair.variant)}
        wanted |= set(experiment.grid) if open_ else set()
        participants = tuple(name for name in experiment.entered() if name in wanted)
        settles = float(missing) if missing > 0 else min(rounds)
        headline = any(target.headline for target in left)
        verdicts = (*self._verdicts(left), *(self._all_contrasts(),) * bool(open_))
        had = {target: len(self.series.get(target.comparison, [])) for target in left}
        of_contrasts = [had for had, _ in open_]
        asked = [rounds for target, rounds in had.items() if target.question]
        asked += of_contrasts * experiment.grid_is_asked
        yield Remaining(
            participants,
            missing > 0,
            settles,
            max(rounds),
            len(rounds),
            headline,
            verdicts=verdicts,
            asked=min(asked, default=None),
            had=min(*had.values(), *of_contrasts, FIRST_LOOK),
        )

    def _open_contrasts(self, experiment: Experiment) -> list[tuple[int, float]]:
        """Of each contrast that is not settled: how many rounds it had, and about how many it still needs."""
        _, logs = self.grids.get(experiment.workload.name, (experiment, []))
        plan = self._plan_of_grid(experiment)
        return [
            (
                len(values),
                max(rounds_needed(values, contrast.region, alpha=plan), next_look(len(values), plan)) - len(values),
            )
            for contrast, values in open_contrasts(experiment.contrasts, logs, alpha=plan)
        ]

    def _plan_of_grid(self, experiment: Experiment) -> LookPlan:
        return self.design.plan(experiment.workload.name, self.alpha / max(len(experiment.contrasts), 1))

    def _all_contrasts(self) -> WaitsFor:
        """A verdict from contrasts waits for those of all workloads."""
        return tuple(
            Wait(Comparison(workload, "contrast", experiment.baseline), needed, had)
            for workload, (experiment, _) in self.grids.items()
            for had, needed in self._open_contrasts(experiment)
        )

    def alpha_of(self, part: str) -> float:
        """What the effects of a part are judged at: they share alpha once they lie on different sides."""
        targets = self.parts[part]
        alpha = self.alpha / targets[0].at_once
        answers = {*self._answers(targets, alpha).values()} - {None}
        is_shared = targets[0].at_once >= len(targets)  # from the start
        return shared_alpha(alpha, len(targets)) if len(answers) > 1 and not is_shared else alpha

    def _rounds_left(self, target: Target) -> float:
        """Rounds until the effect is settled and known well enough, those of a look; a guess at first, 0 when it is."""
        alpha, values = self.alpha_of(target.part), self.series.get(target.comparison, [])
        interval, stretch = self._interval(target.comparison, alpha), self._stretch(target.comparison)
        plan = partial(self.design.plan, target.comparison.workload, alpha)
        if self._answer(target, alpha) is None:
            needed = min(rounds_needed(values, each, alpha=plan(each), stretch=stretch) for each in target.regions)
        else:
            half, enough = (interval.high - interval.low) / 2, ENOUGH_OF_QUESTIONS if target.question else ENOUGH_ROUNDS
            if half <= target.precision or len(values) >= enough:
                return 0.0
            needed = min(len(values) * (half / target.precision) ** 2, enough)
        until_look = next_look(len(values), plan()) - len(values)
        return until_look if len(values) < 2 else max(needed - len(values), until_look)

    def _interval(self, pair: Comparison, alpha: float, region: Region | None = None) -> Interval:
        values, plan = self.series.get(pair, []), self.design.plan(pair.workload, alpha, region)
        known = self.intervals.get((pair, plan))
        if known is None or known.n != len(values):
            known = self.intervals[pair, plan] = running_interval(values, plan)
        return known


def _riding(rule: StoppingRule, experiment: Experiment, pair: Comparison, is_apart: Apart) -> list[str]:
    """The control that has a part in the next round of a pair that is measured apart, if any: see PROCESSES_OF_CONTROL.
    In a run that others are compared with there is one in every round, until all are known."""
    open_ = [each.variant for each in _controls(rule, experiment, is_apart) if each.baseline in pair.sides]
    if not rule.to_compare:
        turn = len(rule.series.get(pair, [])) % PROCESSES_OF_CONTROL
        open_ = [name for name in open_ if turn == (PROCESSES_OF_CONTROL // 2 if name in REFERENCE_BENCHMARKS else 0)]
    return open_[:1]


def _controls(rule: StoppingRule, experiment: Experiment, is_apart: Apart) -> list[Comparison]:
    """The controls of pairs that are measured apart and are not known yet. They take part one after the other: in a
    run that others are compared with, first the reference benchmark, without which it would say nothing to them.

    The identical copy of another variant takes part in rounds of many variants alone: the time of a pair is dear,
    and where each side has a process of its own, the copy would be nothing but A/A.
    """
    names = [name for name in experiment.controls if EnteredName(name).control != COPY]
    names = [name for name in names if name not in rule.left_out]
    names.sort(key=lambda name: rule.to_compare and name not in REFERENCE_BENCHMARKS)
    pairs = [experiment.control_pair(name) for name in names]
    return [pair for pair in pairs if is_apart(pair) and not _control_is_known(pair, rule._interval(pair, ALPHA))]


def _controls_left(rule: StoppingRule, experiment: Experiment, is_apart: Apart) -> Iterator[Remaining]:
    """Where all effects are settled: the first interval of the controls that say how noisy the run was, and by
    which saved runs are compared."""
    for pair in _controls(rule, experiment, is_apart):
        judged = EnteredName(pair.variant).is_control  # at alpha over their number; the reference benchmark is not
        if (missing := rule._missing(pair, rule.alpha / (rule.controls if judged else 1))) > 0:
            yield Remaining((pair.baseline, pair.variant), True, float(missing), float(missing), 0, False, pair)


def _relative_left(rule: StoppingRule, experiment: Experiment) -> Iterator[Remaining]:
    """Where nothing else is wanted: rounds of all variants with the reference benchmark, until it is known well."""
    for name in {*REFERENCE_BENCHMARKS} & {*experiment.controls} if rule.to_compare else ():
        pair = experiment.control_pair(name)
        interval = rule._interval(pair, ALPHA)
        half = (interval.high - interval.low) / 2
        if half > REFERENCE_PRECISION:
            more = interval.n * ((half / REFERENCE_PRECISION) ** 2 - 1) if interval.n else math.inf
            needed = max(more if math.isfinite(more) else rule._missing(pair, ALPHA), 1.0)
            names = tuple(each for each in experiment.entered() if not EnteredName(each).is_control)
            yield Remaining(names, False, needed, needed, 0)


def open_contrasts(
    contrasts: Sequence[Contrast], logs: ArrayLike, *, alpha: Level
) -> list[tuple[Contrast, NDArray[np.float64]]]:
    """The contrasts that the rounds so far do not settle, with one value a round; `logs` [rounds, cells] of a call."""
    open_ = []
    for contrast in contrasts:
        values = -np.reshape(np.asarray(logs, dtype=np.float64), (-1, len(contrast.cells))) @ contrast.weights
        if not decided(running_interval(values, alpha), contrast.region):
            open_.append((contrast, values))
    return open_


def _control_is_known(pair: Comparison, interval: Interval) -> bool:
    if pair.variant == FUNCTION_REFERENCE:  # processes of functions differ more, and a round of each costs little
        return (interval.high - interval.low) / 2 <= REFERENCE_PRECISION
    return _is_known(interval, REFERENCE_PRECISION if pair.variant in REFERENCE_BENCHMARKS else CONTROL_PRECISION)


def _is_known(interval: Interval, precision: float) -> bool:
    return (interval.high - interval.low) / 2 <= precision or interval.n >= ENOUGH_ROUNDS


def proven(rule: StoppingRule, pair: Comparison) -> Interval | None:
    """A pair's interval of the log ratio, where it leaves out that both sides take the same time, whatever page faults
    may have done. Else None."""
    interval, stretch = rule._interval(pair, rule.alpha), rule._stretch(pair)
    is_open = interval.low - stretch.low <= 0 <= interval.high + stretch.high
    return None if interval.unstable or is_open else interval


def differing(rule: StoppingRule, pair: Comparison) -> tuple[float, float] | None:
    """Where a pair's interval leaves out that both sides take the same time: typical times of a call of baseline and
    variant, which fit the ratio. Else None."""
    interval = rule._interval(pair, rule.alpha)
    if interval.low <= 0 <= interval.high:
        return None
    baseline = float(np.median([process.call_baseline_ns for process in rule.found[pair]]))
    return baseline, baseline / math.exp(interval.centre)


# -- rounds of processes that are not over yet -------------------------------------------------------------------------


@dataclass
class OpenProcesses:
    """By workload, the rounds of the process that measures it now."""

    rounds: dict[str, list[Round]] = field(default_factory=dict)

    def add(self, finished: Round) -> Iterator[list[Round]]:
        """Take a round in; gives the rounds of the process before, where this round is of the next one."""
        open_ = self.rounds.get(finished.workload, [])
        if open_ and open_[0].process != finished.process:
            yield self.rounds.pop(finished.workload)
        self.rounds.setdefault(finished.workload, []).append(finished)

    def had(self, workload: str, variant: str) -> bool:
        """Whether a variant was timed in the process that measures the workload now."""
        return any(sample.variant == variant for each in self.rounds.get(workload, ()) for sample in each.samples)

    def end(self, process: int | None = None) -> Iterator[list[Round]]:
        """The rounds of this process, by workload; without a number those of every process."""
        over = [workload for workload, rounds in self.rounds.items() if process in (None, rounds[0].process)]
        for workload in over:
            yield self.rounds.pop(workload)
