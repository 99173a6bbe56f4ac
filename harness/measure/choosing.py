"""What is measured next."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import NamedTuple, Protocol

from llama_workbench.datasets.lengths import least_calls

from ..evidence.effect import budget, duration
from ..spec.comparison import Comparison, EnteredName
from ..spec.experiments import Experiment
from ..spec.sample import Round, Sample
from ..stats.confidence import EARLY, FIRST_LOOK
from .groups import Group
from .participants import Begin, ExperimentState

# -- what still needs rounds, as the stopping rule says it -------------------------------------------------------------


class Wait(NamedTuple):
    """An effect that a verdict waits for, about how many rounds until it is settled, how many it has had, and whether
    it is of a headline claim."""

    pair: Comparison
    rounds: float
    done: int
    headline: bool = False


WaitsFor = tuple[Wait, ...]
"""All that one verdict waits for."""


@dataclass(frozen=True)
class Remaining:
    """Effects that still need rounds, and what they need: those of one `pair` that is measured apart, or all others of
    an experiment, which are measured together.

    What is called a round here is what gives one value: a process, in which there may be several. `rounds_next`:
    until the next effect settles; `rounds_all`: until all do. Both are estimates, infinite where nothing can be
    said. `variants`: what takes part in the next round; of a pair that is its two sides, and a control while one is
    not known well. `early`: too few rounds yet for any interval of some effect; `rounds_next` is then until all
    have one, which is known. `effects`: how many are not settled; 0 for a control that only wants its interval.
    `headline`: whether one of them is of a headline claim. `verdicts`: for each verdict that waits for one of these
    effects, all that it waits for. None at all: every verdict is known, and only intervals are still wide. `asked`:
    how many rounds those had that the first screen asks for; None where there is none. `had`: the fewest that one of
    its effects had.
    """

    variants: tuple[str, ...]
    early: bool
    rounds_next: float
    rounds_all: float
    effects: int = 1
    headline: bool = False
    pair: Comparison | None = None
    verdicts: tuple[WaitsFor, ...] = ()
    asked: int | None = None
    had: int = FIRST_LOOK

    @property
    def needs_precision(self) -> bool:
        """Whether the first interval will probably settle less than all: then longer blocks are worth their time."""
        return not self.early or self.rounds_all > self.rounds_next


class Stopping(Protocol):
    """Decides what still needs rounds."""

    def add(self, finished: Round) -> None:
        """Take a finished round in. It counts once its process is over."""

    def end_process(self, process: int | None = None) -> None:
        """This process is over; without a number: each of them."""

    def remaining(self, experiment: Experiment, is_apart: Callable[[Comparison], bool]) -> Sequence[Remaining]:
        """What still needs rounds, and about how many. `is_apart`: whether a pair is measured alone."""


Open = tuple[ExperimentState, Remaining]


# Which pairs are measured apart, in rounds or blocks of their own, and for how long a block samples.
# A pair alone varies less than the same pair among many variants, because its two samples follow each other. A block
# (`worker.rounds`) goes further and switches between the two within a call.


CAN_SLICE = hasattr(os, "fork") and hasattr(os, "sched_setaffinity")
"""Elsewhere there are no blocks."""

LEAST_CALL_NS, MOST_CALL_NS = 1_000_000, 400_000_000
"""Calls of a block. The scheduler switches every few milliseconds: rounds of shorter calls are interleaved finely
enough. Of longer ones a block would hold too few."""

MOST_UNLIKE = 1.05
"""Blocks are for pairs whose calls differ by less than this factor when their first round begins. Every switch leaves
caches to the other side. Sides that are alike lose alike by that; where one needs more cache, rounds and blocks differ
by some percent."""

TIME_SHARE = 0.6
"""Of the time, for the first intervals of all pairs apart. More pairs than fit are measured together."""

LEAST_BLOCK_SECONDS, MOST_BLOCK_SECONDS = 0.25, 4.0
"""Of samples in a block of two; of three half as much more."""

BESIDE_SIDES = 1.5
"""A round of functions takes so many times as long as their samples: controls, inputs and calls that are not timed."""

BLOCK_CALLS = 3
BLOCK_SHARE = 3.0
"""A block samples for so many times as long as it takes beside that."""


def can_be_apart(state: ExperimentState, pair: Comparison) -> bool:
    """Whether a pair of models can be measured alone. Functions already are: their workloads mostly have two. Engines
    and compiled code are loaded anew for every round, which is too dear for one pair."""
    workload = state.workload
    return (
        workload.kind in ("prefill", "decode")
        and pair.metric == "time"
        and not pair.sides & {*state.wall_variants, *state.kept_together}
        and all(state.call_ns.get(name, 0.0) >= LEAST_CALL_NS for name in pair.sides)
    )


def is_sliced(state: ExperimentState, pair: Comparison) -> bool:
    """Whether a pair that is measured apart is measured in blocks: both sides compute in one thread of this processor,
    for calls that are alike, long enough to be cut up and short enough to come often. Its first round decides that for
    the others (`decide_sliced`): the two methods may differ."""
    return state.sliced.get(pair, _can_be_sliced(state, pair, state.call_ns))


def decide_sliced(state: ExperimentState, pair: Comparison, samples: Iterable[Sample]) -> None:
    """After the first round of a pair: are the others blocks? They are where its calls are alike, in this round or by
    the least time of each so far. (Of one that was measured seldom, that may be of a slow minute of the machine.)"""
    seen = (state.calls_of(samples), state.call_ns)
    state.sliced[pair] = any(_can_be_sliced(state, pair, call_ns) for call_ns in seen)


def _can_be_sliced(state: ExperimentState, pair: Comparison, call_ns: Mapping[str, float]) -> bool:
    calls_ns = [call_ns.get(name, 0.0) for name in pair.sides]
    return (
        CAN_SLICE
        and (state.device, state.workload.threads, state.own_processes) == ("cpu", 1, False)
        and all(LEAST_CALL_NS <= each <= MOST_CALL_NS for each in calls_ns)
        and max(calls_ns) < MOST_UNLIKE * min(calls_ns)
    )


def in_parts(state: ExperimentState, chosen: Remaining) -> list[Remaining]:
    """What is measured at once. A block is for sides that are alike: where a model's reference benchmark is not, it
    has a round with its partner after the block of the pair."""
    reference_benchmarks = [name for name in chosen.variants[2:] if not EnteredName(name).is_control]
    unlike = [pair for pair in map(state.experiment.control_pair, reference_benchmarks) if not is_sliced(state, pair)]
    if chosen.pair is None or not unlike or not is_sliced(state, chosen.pair):
        return [chosen]
    left_out = {pair.variant for pair in unlike}
    alone = replace(chosen, variants=tuple(name for name in chosen.variants if name not in left_out))
    return [alone, *(replace(chosen, variants=(pair.baseline, pair.variant), pair=pair) for pair in unlike)]


def choose_apart(states: Sequence[ExperimentState], rule: Stopping, seconds: float) -> None:
    """Decide before the first round, for all of a run, which pairs are measured apart.

    A pair alone costs more than its part of a round of many, and varies much less. So all pairs are, as long as that
    leaves time for the first interval of every one: those that the first screen asks for first, then those of headline
    claims, and then the cheapest.
    """
    open_ = [
        ((each.asked is None, not each.headline, each.rounds_next * round_seconds(state, each.pair)), state, each.pair)
        for state in states
        for each in rule.remaining(state.remaining(), partial(can_be_apart, state))
        if each.pair is not None
    ]
    chosen: dict[int, list[Comparison]] = {id(state): [] for state in states}
    left = TIME_SHARE * seconds
    for (*_, cost), state, pair in sorted(open_, key=lambda entry: entry[0]):
        if cost <= left or len(open_) == 1:
            left -= cost
            chosen[id(state)].append(pair)
    for state in states:
        pairs, still = chosen[id(state)], state.remaining()
        controls = [still.control_pair(name) for name in still.controls if pairs]
        state.pairs_apart = frozenset([*pairs, *(pair for pair in controls if can_be_apart(state, pair))])


def round_seconds(state: ExperimentState, pair: Comparison | None = None) -> float:
    """About how long a round of many variants takes, or one of the pair: at first a build, a warm-up and samples of
    each, or the shortest block, with what a process takes once."""
    once = once_seconds(state, pair)
    if pair is None:
        calls = 2 * least_calls(state.workload.statistic) or 3
        sampled = max(
            calls * sum(state.call_ns.values()) / 1e9,
            BESIDE_SIDES * len(state.remaining().variants) * (state.pace.usual_seconds if state.pace else 0.0),
        )
        return state.together.each(sampled + 2 * state.start_seconds + once)
    if is_sliced(state, pair):
        return state.apart.each(1.8 * block_seconds(state, pair.sides) + once)
    calls_seconds = 6 * sum(state.call_ns.get(name, 0.0) for name in pair.sides) / 1e9
    return state.apart.each(calls_seconds + 2 * state.start_seconds + once)


def saved_seconds(state: ExperimentState, rounds: float = 1.0) -> float:
    """How much less time the next so many rounds take than usual ones."""
    return state.pace.saved(rounds) * len(state.remaining().variants) if state.pace is not None else 0.0


def once_seconds(state: ExperimentState, pair: Comparison | None = None) -> float:
    """What a process takes once for the sides of a pair and their controls, or for all: the first input and first call
    of each, and the import and first call of the baseline that its answer is compared with. By the gates, and above
    what later calls take. None where each process passes its gates again: `start_seconds` has it."""
    if state.start_seconds and not state.own_processes:
        return 0.0
    base_ns, seconds = state.call_ns.get(state.experiment.baseline, 0.0), 0.0
    for name, learnt in state.learnt.items():
        if name not in state.excluded and (pair is None or EnteredName(name).original in pair.sides):
            first_ns = learnt.get("first_ns", 0) - state.call_ns.get(name, 0.0)
            seconds += (max(first_ns, 0.0) + max(learnt.get("first_check_ns", 0) - base_ns, 0.0)) / 1e9
    return seconds


def block_seconds(state: ExperimentState, sides: Collection[str], pace: float = math.inf) -> float:
    """How long the sides of a block are sampled: long against what it takes beside that, but at least some calls of
    each. pace: how long the whole block may take, if that is more than the least."""
    calls = BLOCK_CALLS * sum(state.call_ns.get(name, 0.0) for name in sides) / 1e9
    least = max(LEAST_BLOCK_SECONDS * len(sides) / 2, calls) * (1 + min(state.lost_blocks, 3))
    if not math.isfinite(state.beside_seconds):
        return least
    return max(least, min(BLOCK_SHARE * state.beside_seconds, MOST_BLOCK_SECONDS, pace - state.beside_seconds))


def pace_of(open_: Sequence[Open], seconds_left: float) -> float:
    """How long a block may take, so that all first intervals fit in half of the time that is left."""
    early = [(state, each) for state, each in open_ if each.early and each.effects]
    blocks = sum(each.rounds_next for _, each in early if each.pair is not None)
    others = sum(each.rounds_next * round_seconds(state) for state, each in early if each.pair is None)
    return max(seconds_left / 2 - others, 0.0) / blocks if blocks else math.inf


HEADLINE_FACTOR = 2.0
"""What a verdict of a headline claim may cost, against one of another claim."""

OTHERS_FACTOR = 1.25
"""So many times what they should take is left for the first intervals of what the first screen does not ask for: one
that knows its questions to a per mille, and of most other claims nothing, would be no run of all claims."""


def next_to_measure(open_: Sequence[Open], seconds_left: float) -> Open:
    """What is measured next.

    First what the first screen asks for: what has no interval yet, headlines and then the least time for each effect
    first; then, until each is known well enough or all other first intervals need the time that is left, what had the
    fewest processes. After that the same of other effects that have no interval yet, and of those that early looks
    have not settled: theirs are for large differences alone, and tell nothing else. Then what completes the verdict
    that costs least: with all other effects that
    it waits for, and with what these have had. (An effect on its limit always seems to need a little more; so it
    gives way once it has had more than others need.) A headline may cost HEADLINE_FACTOR times as much. Then the
    intervals of controls, and those of settled effects that are still wide. What the time that is left will not
    settle comes after that, and last what can no longer get its first interval: its rounds would say nothing.
    """
    state_of = {state.name: state for state, _ in open_}

    def seconds_for(waits_for: WaitsFor, rounds_of: Callable[[Wait], float]) -> float:
        apart, together = 0.0, dict[str, float]()  # by workload: a round of many serves all pairs of its workload
        for wait in waits_for:
            pair = wait.pair
            if state := state_of.get(pair.workload):
                if state.is_apart(pair):
                    apart += rounds_of(wait) * round_seconds(state, pair)
                else:
                    seconds = rounds_of(wait) * round_seconds(state)
                    together[pair.workload] = max(together.get(pair.workload, 0.0), seconds)
        return apart + sum(together.values())

    def cost(waits_for: WaitsFor, seconds: float) -> tuple[bool, float]:
        """Whether it is more than the time that is left, and what the verdict costs in all."""
        left = max(seconds, seconds_for(waits_for, lambda wait: wait.rounds))
        had = seconds_for(waits_for, lambda wait: wait.done)
        weight = HEADLINE_FACTOR if any(wait.headline for wait in waits_for) else 1.0
        return left > seconds_left, (left + had) / weight

    begun = _in_time(open_, seconds_left)
    of_others = [entry for entry in open_ if id(entry[1]) in begun and entry[1].asked is None]
    is_late = OTHERS_FACTOR * reduce(FirstIntervals.plus, of_others, FirstIntervals()).seconds() > seconds_left

    def order(entry: Open) -> tuple[float, bool, float, float]:
        state, remaining = entry
        seconds = remaining.rounds_next * round_seconds(state, remaining.pair)
        in_time, later, asked = seconds <= seconds_left, not remaining.headline, remaining.asked
        if remaining.early and remaining.effects:
            others = 0.5 if is_late else 2
            tier = 8 if id(remaining) not in begun else others if asked is None else 0
            return tier, later, seconds / remaining.effects, state.seconds
        if asked is not None:
            return 1, False, asked, seconds
        if not remaining.effects:
            return 5 if in_time else 8, later, seconds, state.seconds
        if not remaining.verdicts:
            return 6 if in_time else 8, later, seconds, state.seconds
        first = (FIRST_LOOK - remaining.had) * round_seconds(state, remaining.pair)
        if 0 < first <= seconds_left:
            return 3, later, first / remaining.effects, state.seconds
        hopeless, weighed = min(cost(waits_for, seconds) for waits_for in remaining.verdicts)
        return 7 if hopeless else 4, False, weighed, seconds

    return min(open_, key=order)


def nearly_settled(open_: Sequence[Open], seconds_left: float) -> list[Open]:
    """What a verdict waits for and these seconds should bring, by the estimate: an effect settled, or its first
    interval. The soonest first."""
    costs = [
        (each.rounds_next * max(state.begin.seconds, round_seconds(state, each.pair)), index)
        for index, (state, each) in enumerate(open_)
        if each.effects and (each.early or each.verdicts)
    ]
    return [open_[index] for seconds, index in sorted(costs) if seconds <= seconds_left]


@dataclass
class FirstIntervals:
    """Of some of what has no interval yet: what all of them take together. Those that share a checkpoint share their
    processes, and rounds of one process follow each other."""

    processes: dict[int, tuple[Begin, float]] = field(default_factory=dict)  # of each group: how many are needed
    rounds: dict[int, float] = field(default_factory=dict)  # and the seconds of their rounds

    def seconds(self) -> float:
        """Of the clock. Where the next process begins beside one, what takes longer counts; where it cannot, a process
        measures for as long as it took to begin (see `Processes.should_wait`)."""
        total = 0.0
        for group, (begin, count) in self.processes.items():
            beginning, rounds = count * begin.seconds, self.rounds[group]
            total += max(beginning, rounds) + (0.0 if begin.beside else beginning)
        return total

    def plus(self, what: Open) -> FirstIntervals:
        """The same with one more."""
        (state, remaining), group = what, id(what[0].begin)
        rounds, (_, before) = remaining.rounds_next, self.processes.get(group, (state.begin, 0.0))
        more = max(rounds * round_seconds(state, remaining.pair) - saved_seconds(state, rounds), 0.0)
        return FirstIntervals(
            self.processes | {group: (state.begin, max(rounds, before))},
            self.rounds | {group: self.rounds.get(group, 0.0) + more},
        )


def first_intervals(open_: Sequence[Open]) -> list[tuple[Open, float]]:
    """What has no interval yet, in the order in which it gets one: what the first screen asks for, then headlines, then
    what was begun, then the cheapest. Each with the seconds until it and all before it have theirs."""
    early = [each for each in open_ if each[1].early and each[1].effects]

    def order(entry: Open) -> tuple[bool, bool, bool, float]:
        state, remaining = entry
        seconds = remaining.rounds_next * round_seconds(state, remaining.pair)
        return remaining.asked is None, not remaining.headline, not state.rounds, seconds / remaining.effects

    together, costs = FirstIntervals(), []
    for entry in sorted(early, key=order):
        together = together.plus(entry)
        costs.append((entry, together.seconds()))
    return costs


def in_time(open_: Sequence[Open], seconds_left: float) -> list[Open]:
    """What is measured now: without what can get no first interval in the time that is left beside those before it. Its
    rounds would say nothing, and its part of each process would keep the others waiting. Where nothing else is open:
    the first of these alone."""
    chosen = _in_time(open_, seconds_left)
    kept = [each for each in open_ if not (each[1].early and each[1].effects) or id(each[1]) in chosen]
    return kept or [first_intervals(open_)[0][0]]


def _in_time(open_: Sequence[Open], seconds_left: float) -> set[int]:
    """Which of the first intervals (`id` of each) fit into the time together."""
    chosen, together = set[int](), FirstIntervals()
    for entry, _ in first_intervals(open_):
        if (more := together.plus(entry)).seconds() <= seconds_left:
            together = more
            chosen.add(id(entry[1]))
    return chosen


def first_answer_text(open_: Sequence[Open], seconds: float, given: float) -> str:
    """How long a first answer takes, against the seconds of rounds that there are, and the budget that was given, of
    which gates may have been a part; empty where every effect has its first interval. With it every experiment learns
    what its own should take (`first_seconds`)."""
    costs = first_intervals(open_)
    if not costs:
        return ""
    given = given if math.isfinite(given) else seconds  # who goes on gives a budget for rounds alone
    before = 0.0
    for (state, _), until in costs:
        state.first_seconds = (state.first_seconds or 0.0) + until - before
        before = until
    (state, remaining), first = costs[0]
    count, whole = remaining.rounds_next, costs[-1][1]
    text = f"first answer after about {duration(first)} ({count:.0f} processes of {first / count:.2g} s)"
    (early, least_shown), *_ = EARLY
    if count == early:
        more = max(first / count, round_seconds(state, remaining.pair))
        times, later = math.exp(least_shown), duration(first + (FIRST_LOOK - count) * more)
        text += f" if one side takes {times:.3g} times as long, otherwise after about {later} ({FIRST_LOOK} processes)"
    if len(costs) > 1:
        text += f"; all {len(costs)} first answers after {duration(whole)}"
    if first > seconds:
        return (
            f"{text}; the budget, {given:.3g} s, is too small for any: give --budget {budget(first + given - seconds)}"
        )
    if whole > seconds:
        there = sum(until <= seconds for _, until in costs)
        kept = f"the budget, {given:.3g} s, is enough for {there} of them, one after the other"
        return f"{text}; {kept}: --budget {budget(whole + given - seconds)} is for all"
    return f"{text}; the budget is {given:.3g} s"


# -- how many processes a budget should give, by costs alone: along them alpha is spent (see `stats.confidence`) -------

START_SECONDS, TORCH_START_SECONDS = 0.25, 3.0
"""What beginning a process takes, about: without torch, and with it."""

LEAST_PROCESSES, MOST_PROCESSES = 16, 400

FIRST_PROCESSES, SETTLED_SHARE = 12, 0.5
"""After so many processes about so many of several pairs are settled, and leave their time to the others."""


def set_horizons(groups: Sequence[Group], seconds: float) -> None:
    """Give every experiment that has none yet the number of processes that its pairs should have after so many
    seconds: of processes in which everything of the group has a round, and of which the next one is begun meanwhile
    where that can be."""
    states = [state for group in groups for state in group.states]
    pairs = {id(state): {target.comparison for target in state.remaining().targets} for state in states}
    one_each = 0.0
    for group in groups:
        rounds = 0.0
        for state in group.states:
            apart = [pair for pair in pairs[id(state)] if can_be_apart(state, pair)]
            rounds += sum(round_seconds(state, pair) for pair in apart)
            rounds += round_seconds(state) if len(apart) < len(pairs[id(state)]) else 0.0
        one_each += max(rounds, TORCH_START_SECONDS if group.torch else START_SECONDS)
    processes = seconds / one_each if one_each else math.inf
    if sum(map(len, pairs.values())) > 1 and processes > FIRST_PROCESSES:
        processes = FIRST_PROCESSES + (processes - FIRST_PROCESSES) / (1 - SETTLED_SHARE)
    for state in states:
        state.horizon = state.horizon or int(min(max(processes, LEAST_PROCESSES), MOST_PROCESSES))
