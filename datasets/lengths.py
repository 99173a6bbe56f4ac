"""How long the calls of a workload are, and how many of them a percentile needs.

Importing this imports next to nothing: each process of functions does."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .workloads import Workload

DECODE_ROOM = 64
"""Positions after the context that the decode calls of a round may use, one each."""


def call_lengths(workload: Workload, *, round_index: int, count: int, seed: int) -> list[int]:
    """Tokens of each of the `count` calls of one round, the same again for the same round and seed.

    repeated: all `tokens`. distinct: different ones, at most a quarter below or above `tokens`. trace: drawn by
    inverse CDF, one from each of `count` equally likely parts of the distribution in random order, so that rounds are
    more alike than with independent draws; divided by `length_divisor`, rounded, at least 1 and at most
    `length_limit`. Raises `DataError` if there are fewer than `count` distinct lengths."""
    if workload.lengths == "repeated":
        return [workload.tokens] * count
    rng = random.Random(f"lengths {workload.name} {seed} {round_index}")
    if workload.lengths == "distinct":
        shortest, longest = _distinct_range(workload)
        if count > longest - shortest + 1:
            most = f"{longest - shortest + 1} (from {shortest} to {longest}); take fewer calls a round or more tokens"
            from .geometries import DataError

            raise DataError(f"workload {workload.name}: {count} distinct lengths asked for, expected at most {most}")
        return rng.sample(range(shortest, longest + 1), count)
    drawn = [drawn_length(workload, (part + rng.random()) / count) for part in range(count)]
    rng.shuffle(drawn)
    return drawn


def warmup_length(workload: Workload, *, lengths: Sequence[int]) -> int:
    """Tokens of the warm-up calls before the calls of `lengths`: the same where all are the same, else the nearest to
    `tokens` that none of them has, so that a cache keyed by length is no warmer than it would be in service."""
    if workload.lengths == "repeated":
        return workload.tokens
    longest = longest_call(workload)
    free = (
        length
        for distance in range(longest)
        for length in (workload.tokens - distance, workload.tokens + distance)
        if 1 <= length <= longest and length not in lengths
    )
    return next(free, workload.tokens)


def longest_call(workload: Workload) -> int:
    """Most positions that a sequence takes after its context; with that in front they fit the geometry."""
    if workload.lengths == "trace":
        return drawn_length(workload, 1.0)
    if workload.kind == "decode":
        return DECODE_ROOM
    tokens = _distinct_range(workload)[1] if workload.lengths == "distinct" else workload.tokens
    return tokens + (workload.new_tokens or 0)


def pieces(workload: Workload, length: int) -> list[int]:
    """Tokens of each forward that a prefill of `length` tokens takes: all at once, or in chunks."""
    chunk = workload.chunk or length
    return [min(chunk, length - start) for start in range(0, length, chunk)]


def drawn_length(workload: Workload, fraction: float) -> int:
    """The length below which this part (from 0 to 1) of a trace workload's calls lie."""
    assert workload._trace is not None
    length = max(1, round(workload._trace.length_at(fraction) / workload.length_divisor))
    return length if workload.length_limit is None else min(length, workload.length_limit)


def _distinct_range(workload: Workload) -> tuple[int, int]:
    return workload.tokens - workload.tokens // 4, workload.tokens + workload.tokens // 4


Statistic = Literal["p90", "p95", "p99"]

PERCENTILES: Mapping[str, float] = {"p90": 0.90, "p95": 0.95, "p99": 0.99}
"""By name, the share of calls that take no longer."""

BEYOND = 2
"""So many calls of a process should take longer than its percentile: with fewer that is hardly more than its
slowest."""


def least_calls(statistic: str | None) -> int:
    """Calls of each side that a process must have for this percentile; 0 for none."""
    return round(BEYOND / (1 - PERCENTILES[statistic])) if statistic else 0
