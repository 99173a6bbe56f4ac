"""What a function gains where it is given an input again: one that remembers answers, or what led to them, would look
faster than it is wherever its inputs are other ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns, thread_time_ns  # bound before any foreign code is imported
from typing import Any

from ..calls.payload import Arguments
from ..calls.pool import CHEAP_SHARE, MOST_INPUTS, GainAgain, InputCosts, copier
from .state import Bench, Subject, Worker

BATCH_NS, WHOLE_NS, LONGEST_NS = 10_000_000, 100_000_000, 300_000_000
"""So many inputs are tried at once as take so long, with both calls of each, and batches until the second is over.
Where LEAST_INPUTS of them would take longer than the third, nothing is tried."""

LEAST_INPUTS, LEAST_BATCHES = 3, 3


def gained_again(worker: Worker, bench: Bench, subject: Subject, entered: str) -> GainAgain | None:
    """How much less time second calls with the inputs of a batch take than first ones; None where each call is given a
    new input in any case, or calls take too long to try it."""
    called = bench.called[entered]
    call_ns, make_ns = subject.call_ns, called.make_ns
    is_dear = called.makes_inputs and make_ns > CHEAP_SHARE * call_ns
    each_ns = 2 * call_ns + make_ns
    if called.changes_inputs and not called.copy_ns:
        return None
    if worker.notes is None or called.is_fresh or called.is_apart or not is_dear or LEAST_INPUTS * each_ns > LONGEST_NS:
        return None
    count = min(max(int(BATCH_NS / each_ns), LEAST_INPUTS), MOST_INPUTS)
    firsts: list[float] = []
    gains: list[float] = []
    with worker.modes_of(bench):
        function, begun = called.make(), perf_counter_ns()
        copies = InputCosts.of(called.learnt()).is_copied(call_ns)
        while len(gains) <= LEAST_BATCHES or perf_counter_ns() - begun < WHOLE_NS:
            called.side.enter()
            inputs = called.payload.batch(bench.take(count), count)
            given = [copier(each) if copies else partial(_same, each) for each in inputs]
            first, again = ([_call_ns(function, give()) for give in given] for _ in range(2))
            firsts.append(statistics.median(first))
            gains.append(_middle([one - other for one, other in zip(first, again)]))
    warm = gains[1:]
    error = statistics.stdev(warm) / math.sqrt(len(warm))
    return GainAgain(statistics.fmean(firsts[1:]), statistics.fmean(warm), error, len(warm) - 1)


def _middle(values: Sequence[int]) -> float:
    """The mean of the middle half: the median of short calls is a whole number of a clock's ticks, the same in every
    batch, and would have no error."""
    cut = len(values) // 4
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def _same(arguments: Arguments) -> Arguments:
    return arguments


def _call_ns(function: Callable[..., Any], arguments: Arguments) -> int:
    begun = thread_time_ns()
    function(*arguments)
    return max(thread_time_ns() - begun, 1)
