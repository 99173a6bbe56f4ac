"""What is measured next."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .apart import round_seconds
from .remaining import Open, Wait, WaitsFor

HEADLINE_FACTOR = 2.0
"""What a verdict of a headline claim may cost, against one of another claim."""


def next_to_measure(open_: Sequence[Open], seconds_left: float) -> Open:
    """What is measured next.

    First what has no interval yet, headlines and then the least time for each effect first. Then what completes the
    verdict that costs least: with all other effects that it waits for, and with what these have had. (An effect on its
    limit always seems to need a little more; so it gives way once it has had more than others need.) A headline may
    cost HEADLINE_FACTOR times as much. Then the intervals of controls, and those of settled effects that are still
    wide. What the time that is left will not settle comes after that, and last what can no longer get its first
    interval: its rounds would say nothing.
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
        in_time, later = seconds <= seconds_left, not remaining.headline
        if remaining.early and remaining.effects:
            return 0 if id(remaining) in begun else 5, later, seconds / remaining.effects, book.seconds
        if not remaining.effects:
            return 2 if in_time else 5, later, seconds, book.seconds
        if not remaining.verdicts:
            return 3 if in_time else 5, later, seconds, book.seconds
        hopeless, weighed = min(cost(waits_for, seconds) for waits_for in remaining.verdicts)
        return 4 if hopeless else 1, False, weighed, seconds

    return min(open_, key=order)


def nearly_settled(open_: Sequence[Open], seconds_left: float) -> list[Open]:
    """What a verdict waits for and these seconds should bring, by the estimate: an effect settled, or its first
    interval. The soonest first."""
    costs = [
        (each.rounds_next * round_seconds(book, each.pair), index)
        for index, (book, each) in enumerate(open_)
        if each.effects and (each.early or each.verdicts)
    ]
    return [open_[index] for seconds, index in sorted(costs) if seconds <= seconds_left]


def _first_intervals(open_: Sequence[Open], seconds_left: float) -> set[int]:
    """Which of the first intervals (`id` of each) fit into the time together: headlines first, then the cheapest.

    Lives are shared, so that all of them grow at the same time: without a choice none might be ready at the end.
    """
    costs = [
        (not remaining.headline, seconds / remaining.effects, seconds, id(remaining))
        for book, remaining in open_
        if remaining.early and remaining.effects
        for seconds in [remaining.rounds_next * round_seconds(book, remaining.pair)]
    ]
    chosen, left = set[int](), seconds_left
    for _, _, seconds, what in sorted(costs):
        if seconds <= left:
            chosen.add(what)
            left -= seconds
    return chosen
