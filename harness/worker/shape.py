"""The shape of a round: how many sub-rounds it has, and how many calls a sample. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from llama_workbench.datasets.workloads import DECODE_ROOM, Workload

LEAST_SAMPLING_NS, MOST_SAMPLING_NS = 10_000_000, 50_000_000
"""A round samples each variant for as long as its rebuilding took, within these bounds. What remains of the noise
within a round and between rounds then costs at most twice what the best split would."""

SHORT_SAMPLE_NS = 60_000_000
"""Samples shorter than this come at least three to a round. Their median leaves out what a busy neighbour does to one
(the spread of one pair was three times that of a round) and averages the effect of a sample's place in its pair."""

FILLED_NS = 20_000_000
"""Decode calls longer than this are warm enough once the context is filled."""

MOST_SUB_ROUNDS = 51
PRIME_NS = 5_000_000
"""A call shorter than this is made once untimed before its sample. Otherwise the sample would measure how cold the
other variants left the caches, which no program that runs one model sees."""

GROUP_FACTOR = 10
"""Variants that differ by more than this factor get different numbers of calls."""


@dataclass(frozen=True)
class Shape:
    """sub_rounds: samples of each variant. repeats: calls in a sample, by variant. prime: an untimed call before it."""

    sub_rounds: int
    repeats: Mapping[str, int]
    prime: bool

    @property
    def most_calls(self) -> int:
        """Calls in the longest sample, without the untimed one."""
        return max(self.repeats.values())


def shape_of_round(
    work: Workload, call_ns: Mapping[str, float], *, once: bool, sample_ns: int, rebuild_ns: float
) -> Shape:
    """call_ns: time of a call by variant. once: each call is a sample of its own. sample_ns: least time of a sample.

    rebuild_ns: time to rebuild one variant; 0 where it is not known yet.
    """
    repeats = _repeats(work, call_ns, sample_ns)
    if once or work.kind == "generate":  # a generation has a first token, and is timed on its own
        repeats = dict.fromkeys(call_ns, 1)
    prime = max(call_ns.values()) < PRIME_NS and not once
    typical_ns = statistics.median(call_ns[name] * (repeats[name] + prime) for name in call_ns)
    pairs = round(min(max(rebuild_ns, LEAST_SAMPLING_NS), MOST_SAMPLING_NS) / typical_ns)
    if typical_ns < SHORT_SAMPLE_NS:
        pairs = max(pairs, 3)
    if work.kind == "decode":
        pairs = min(pairs, (DECODE_ROOM - 2) // (max(repeats.values()) + 1))
    pairs = max(1, min(MOST_SUB_ROUNDS, pairs))
    return Shape(pairs - (pairs % 2 == 0), repeats, prime)


def _repeats(work: Workload, call_ns: Mapping[str, float], sample_ns: int) -> dict[str, int]:
    """Calls in a sample: the same number on all sides, so that the loop costs all the same.

    Variants that are more than GROUP_FACTOR slower get fewer, because one of their samples would last for seconds.
    """
    repeats: dict[str, int] = {}
    fastest_ns = math.inf
    for name in sorted(call_ns, key=call_ns.__getitem__):
        if not repeats or call_ns[name] > GROUP_FACTOR * fastest_ns:  # the first of a group sets the count for all
            fastest_ns = call_ns[name]
            count = math.ceil(sample_ns / fastest_ns)
            if work.kind == "decode":
                count = min(count, DECODE_ROOM // 2)  # there are no more positions
        repeats[name] = count
    return repeats
