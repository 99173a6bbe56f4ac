"""What is measured next."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..evidence.numbers import budget, duration
from ..spec.comparison import Comparison
from ..stats.confidence import EARLY, FIRST_LOOK
from .apart import can_be_apart, round_seconds, seconds_of_rounds
from .durations import Begin
from .groups import Group
from .participants import ExperimentState
from .remaining import Open, Wait, WaitsFor

HEADLINE_FACTOR = 2.0
"""What a verdict of a headline claim may cost, against one of another claim."""


def next_to_measure(open_: Sequence[Open], seconds_left: float) -> Open:
    """What is measured next.

    First what the first screen asks for: what has no interval yet, headlines and then the least time for each effect
    first; then, until each is known well enough, what had the fewest lives. After that the same of other effects that
    have no interval yet. Then what completes the verdict that costs least: with all other effects that it waits for,
    and with what these have had. (An effect on its limit always seems to need a little more; so it gives way once it
    has had more than others need.) A headline may cost HEADLINE_FACTOR times as much. Then the intervals of controls,
    and those of settled effects that are still wide. What the time that is left will not settle comes after that, and
    last what can no longer get its first interval: its rounds would say nothing.
    """
    book_of = {book.experiment.workload.name: book for book, _ in open_}

    def seconds_for(waits_for: WaitsFor, rounds_of: Callable[[Wait], float]) -> float:
        apart, together = 0.0, dict[str, float]()  # by workload: a round of many serves all pairs of its workload
        for wait in waits_for:
            pair = wait.pair
            if book := book_of.get(pair.workload):
                if book.is_apart(pair):
                    apart += rounds_of(wait) * round_seconds(book, pair)
                else:
                    seconds = rounds_of(wait) * round_seconds(book)
                    together[pair.workload] = max(together.get(pair.workload, 0.0), seconds)
        return apart + sum(together.values())

    def cost(waits_for: WaitsFor, seconds: float) -> tuple[bool, float]:
        """Whether it is more than the time that is left, and what the verdict costs in all."""
        left = max(seconds, seconds_for(waits_for, lambda wait: wait.rounds))
        had = seconds_for(waits_for, lambda wait: wait.done)
        weight = HEADLINE_FACTOR if any(wait.headline for wait in waits_for) else 1.0
        return left > seconds_left, (left + had) / weight

    begun = _first_intervals(open_, seconds_left)

    def order(entry: Open) -> tuple[int, bool, float, float]:
        book, remaining = entry
        seconds = remaining.rounds_next * round_seconds(book, remaining.pair)
        in_time, later, asked = seconds <= seconds_left, not remaining.headline, remaining.asked
        if remaining.early and remaining.effects:
            tier = 7 if id(remaining) not in begun else 2 if asked is None else 0
            return tier, later, seconds / remaining.effects, book.seconds
        if asked is not None:
            return 1, False, asked, seconds
        if not remaining.effects:
            return 4 if in_time else 7, later, seconds, book.seconds
        if not remaining.verdicts:
            return 5 if in_time else 7, later, seconds, book.seconds
        hopeless, weighed = min(cost(waits_for, seconds) for waits_for in remaining.verdicts)
        return 6 if hopeless else 3, False, weighed, seconds

    return min(open_, key=order)


def nearly_settled(open_: Sequence[Open], seconds_left: float) -> list[Open]:
    """What a verdict waits for and these seconds should bring, by the estimate: an effect settled, or its first
    interval. The soonest first."""
    costs = [
        (each.rounds_next * max(book.begin.seconds, round_seconds(book, each.pair)), index)
        for index, (book, each) in enumerate(open_)
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
        (book, remaining), group = what, id(what[0].begin)
        rounds, (_, before) = remaining.rounds_next, self.processes.get(group, (book.begin, 0.0))
        more = seconds_of_rounds(book, remaining.pair, rounds)
        return FirstIntervals(
            self.processes | {group: (book.begin, max(rounds, before))},
            self.rounds | {group: self.rounds.get(group, 0.0) + more},
        )


def first_intervals(open_: Sequence[Open]) -> list[tuple[Open, float]]:
    """What has no interval yet, in the order in which it gets one: what the first screen asks for, then headlines, then
    what was begun, then the cheapest. Each with the seconds until it and all before it have theirs."""
    early = [each for each in open_ if each[1].early and each[1].effects]

    def order(entry: Open) -> tuple[bool, bool, bool, float]:
        book, remaining = entry
        seconds = remaining.rounds_next * round_seconds(book, remaining.pair)
        return remaining.asked is None, not remaining.headline, not book.rounds, seconds / remaining.effects

    together, costs = FirstIntervals(), []
    for entry in sorted(early, key=order):
        together = together.plus(entry)
        costs.append((entry, together.seconds()))
    return costs


def in_time(open_: Sequence[Open], seconds_left: float) -> list[Open]:
    """What is measured now: without what can get no first interval in the time that is left beside those before it. Its
    rounds would say nothing, and its part of each process would keep the others waiting. Where nothing else is open:
    the first of these alone."""
    chosen = _first_intervals(open_, seconds_left)
    kept = [each for each in open_ if not (each[1].early and each[1].effects) or id(each[1]) in chosen]
    return kept or [first_intervals(open_)[0][0]]


def _first_intervals(open_: Sequence[Open], seconds_left: float) -> set[int]:
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
    for (book, _), until in costs:
        book.first_seconds = (book.first_seconds or 0.0) + until - before
        before = until
    (book, remaining), first = costs[0]
    count, whole = remaining.rounds_next, costs[-1][1]
    text = f"first answer after about {duration(first)} ({count:.0f} processes of {first / count:.2g} s)"
    (early, least_shown), *_ = EARLY
    if count == early:
        more = max(first / count, round_seconds(book, remaining.pair))
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


# -- how many lives a budget should give, by costs alone: along them alpha is spent (see `stats.confidence`) -----------

START_SECONDS, TORCH_START_SECONDS = 0.25, 3.0
"""What beginning a life takes, about: without torch, and with it."""

LEAST_LIVES, MOST_LIVES = 16, 400

FIRST_LIVES, SETTLED_SHARE = 12, 0.5
"""After so many lives about so many of several pairs are settled, and leave their time to the others."""


def set_horizons(groups: Sequence[Group], seconds: float) -> None:
    """Give every experiment that has none yet the number of lives that its pairs should have after so many seconds."""
    one_each = sum(_seconds_for_one(group) for group in groups)
    lives = seconds / one_each if one_each else math.inf
    if sum(len(_pairs(book)) for group in groups for book in group.books) > 1 and lives > FIRST_LIVES:
        lives = FIRST_LIVES + (lives - FIRST_LIVES) / (1 - SETTLED_SHARE)
    for book in (book for group in groups for book in group.books):
        book.horizon = book.horizon or int(min(max(lives, LEAST_LIVES), MOST_LIVES))


def _seconds_for_one(group: Group) -> float:
    """For a life in which everything of the group has a round. The next one is begun meanwhile, where that can be."""
    rounds = sum(_round_seconds(book) for book in group.books)
    return max(rounds, TORCH_START_SECONDS if group.torch else START_SECONDS)


def _round_seconds(book: ExperimentState) -> float:
    apart = [pair for pair in _pairs(book) if can_be_apart(book, pair)]
    together = len(apart) < len(_pairs(book))
    return sum(round_seconds(book, pair) for pair in apart) + together * round_seconds(book)


def _pairs(book: ExperimentState) -> set[Comparison]:
    return {target.comparison for target in book.remaining().targets}
