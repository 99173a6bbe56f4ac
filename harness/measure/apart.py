"""Which pairs are measured apart, in rounds or blocks of their own, and for how long a block samples.

A pair alone varies less than the same pair among many variants, because its two samples follow each other. A block
(`worker.blocks`) goes further and switches between the two within a call.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from llama_workbench.datasets.lengths import least_calls

from ..spec.comparison import Comparison
from ..spec.entered import EnteredName
from ..spec.sample import Sample
from .participants import ExperimentState
from .remaining import Open, Remaining, Stopping

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


def can_be_apart(book: ExperimentState, pair: Comparison) -> bool:
    """Whether a pair of models can be measured alone. Functions already are: their workloads mostly have two. Engines
    and compiled code are loaded anew for every round, which is too dear for one pair."""
    workload = book.experiment.workload
    return (
        workload.kind in ("prefill", "decode")
        and pair.metric == "time"
        and not pair.sides & {*book.wall_variants, *book.kept_together}
        and all(book.call_ns.get(name, 0.0) >= LEAST_CALL_NS for name in pair.sides)
    )


def is_sliced(book: ExperimentState, pair: Comparison) -> bool:
    """Whether a pair that is measured apart is measured in blocks: both sides compute in one thread of this processor,
    for calls that are alike, long enough to be cut up and short enough to come often. Its first round decides that for
    the others (`decide_sliced`): the two methods may differ."""
    return book.sliced.get(pair, _can_be_sliced(book, pair, book.call_ns))


def decide_sliced(book: ExperimentState, pair: Comparison, samples: Iterable[Sample]) -> None:
    """After the first round of a pair: are the others blocks? They are where its calls are alike, in this round or by
    the least time of each so far. (Of one that was measured seldom, that may be of a slow minute of the machine.)"""
    seen = (book.calls_of(samples), book.call_ns)
    book.sliced[pair] = any(_can_be_sliced(book, pair, call_ns) for call_ns in seen)


def _can_be_sliced(book: ExperimentState, pair: Comparison, call_ns: Mapping[str, float]) -> bool:
    calls_ns = [call_ns.get(name, 0.0) for name in pair.sides]
    return (
        CAN_SLICE
        and (book.device, book.experiment.workload.threads, book.own_processes) == ("cpu", 1, False)
        and all(LEAST_CALL_NS <= each <= MOST_CALL_NS for each in calls_ns)
        and max(calls_ns) < MOST_UNLIKE * min(calls_ns)
    )


def in_parts(book: ExperimentState, chosen: Remaining) -> list[Remaining]:
    """What is measured at once. A block is for sides that are alike: where a model's yardstick is not, it has a round
    with its partner after the block of the pair."""
    yardsticks = [name for name in chosen.variants[2:] if not EnteredName(name).is_control]
    unlike = [pair for pair in map(book.experiment.control_pair, yardsticks) if not is_sliced(book, pair)]
    if chosen.pair is None or not unlike or not is_sliced(book, chosen.pair):
        return [chosen]
    left_out = {pair.variant for pair in unlike}
    alone = replace(chosen, variants=tuple(name for name in chosen.variants if name not in left_out))
    return [alone, *(replace(chosen, variants=(pair.baseline, pair.variant), pair=pair) for pair in unlike)]


def choose_apart(books: Sequence[ExperimentState], rule: Stopping, seconds: float) -> None:
    """Decide before the first round, for all of a run, which pairs are measured apart.

    A pair alone costs more than its part of a round of many, and varies much less. So all pairs are, as long as that
    leaves time for the first interval of every one: those that the first screen asks for first, then those of headline
    claims, and then the cheapest.
    """
    open_ = [
        ((each.asked is None, not each.headline, each.rounds_next * round_seconds(book, each.pair)), book, each.pair)
        for book in books
        for each in rule.remaining(book.remaining(), partial(can_be_apart, book))
        if each.pair is not None
    ]
    chosen: dict[int, list[Comparison]] = {id(book): [] for book in books}
    left = TIME_SHARE * seconds
    for (*_, cost), book, pair in sorted(open_, key=lambda entry: entry[0]):
        if cost <= left or len(open_) == 1:
            left -= cost
            chosen[id(book)].append(pair)
    for book in books:
        pairs, still = chosen[id(book)], book.remaining()
        controls = [still.control_pair(name) for name in still.controls if pairs]
        book.pairs_apart = frozenset([*pairs, *(pair for pair in controls if can_be_apart(book, pair))])


def round_seconds(book: ExperimentState, pair: Comparison | None = None) -> float:
    """About how long a round of many variants takes, or one of the pair: at first a build, a warm-up and samples of
    each, or the shortest block, with what a process takes once."""
    once = once_seconds(book, pair)
    if pair is None:
        calls = 2 * least_calls(book.experiment.workload.statistic) or 3
        sampled = max(
            calls * sum(book.call_ns.values()) / 1e9,
            BESIDE_SIDES * len(book.remaining().variants) * book.usual_side_seconds,
        )
        return book.together.each(sampled + 2 * book.start_seconds + once)
    if is_sliced(book, pair):
        return book.apart.each(1.8 * block_seconds(book, pair.sides) + once)
    calls_seconds = 6 * sum(book.call_ns.get(name, 0.0) for name in pair.sides) / 1e9
    return book.apart.each(calls_seconds + 2 * book.start_seconds + once)


def seconds_of_rounds(book: ExperimentState, pair: Comparison | None, rounds: float) -> float:
    """About how long the next so many of them take: the first ones of functions are shorter."""
    return max(rounds * round_seconds(book, pair) - saved_seconds(book, rounds), 0.0)


def saved_seconds(book: ExperimentState, rounds: float = 1.0) -> float:
    """How much less time the next so many rounds take than usual ones."""
    return book.pace.saved(rounds) * len(book.remaining().variants) if book.pace is not None else 0.0


def once_seconds(book: ExperimentState, pair: Comparison | None = None) -> float:
    """What a process takes once for the sides of a pair and their controls, or for all: the first input and first call
    of each, and the import and first call of the baseline that its answer is compared with. By the gates, and above
    what later calls take. None where each process passes its gates again: `start_seconds` has it."""
    if book.start_seconds and not book.own_processes:
        return 0.0
    base_ns, seconds = book.call_ns.get(book.experiment.baseline, 0.0), 0.0
    for name, learnt in book.learnt.items():
        if name not in book.excluded and (pair is None or EnteredName(name).original in pair.sides):
            first_ns = learnt.get("first_ns", 0) - book.call_ns.get(name, 0.0)
            seconds += (max(first_ns, 0.0) + max(learnt.get("first_check_ns", 0) - base_ns, 0.0)) / 1e9
    return seconds


def block_seconds(book: ExperimentState, sides: Collection[str], pace: float = math.inf) -> float:
    """How long the sides of a block are sampled: long against what it takes beside that, but at least some calls of
    each. pace: how long the whole block may take, if that is more than the least."""
    calls = BLOCK_CALLS * sum(book.call_ns.get(name, 0.0) for name in sides) / 1e9
    least = max(LEAST_BLOCK_SECONDS * len(sides) / 2, calls) * (1 + min(book.lost_blocks, 3))
    if not math.isfinite(book.beside_seconds):
        return least
    return max(least, min(BLOCK_SHARE * book.beside_seconds, MOST_BLOCK_SECONDS, pace - book.beside_seconds))


def pace_of(open_: Sequence[Open], seconds_left: float) -> float:
    """How long a block may take, so that all first intervals fit in half of the time that is left."""
    early = [(book, each) for book, each in open_ if each.early and each.effects]
    blocks = sum(each.rounds_next for _, each in early if each.pair is not None)
    others = sum(each.rounds_next * round_seconds(book) for book, each in early if each.pair is None)
    return max(seconds_left / 2 - others, 0.0) / blocks if blocks else math.inf
