"""The time breakdown of a run for all that shows it: shares by phase out of phases.parquet, and the phases of samples.

A round gives one number a question: time in the phases over time in the denominator. A phase's time in a round is its
median over the calls of one length, for on a shared machine one call in ten is held up; where lengths differ, these are
summed. Rounds rebuild the models and are the unit; their number is fixed beforehand, so a t interval holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_workbench.variants.phase_map import DENOMINATORS, FRAMES, FUSED_PARTS, MEANING, OTHER, PHASES

from ..evidence.effect import ALPHA
from ..slices import faces
from ..spec.table import Table
from ..stats.confidence import fixed_interval

ATTENTION = FUSED_PARTS | {"attention_fused"}
"""What one side may compute in one kernel and the other in four: they are then one."""

NAMES: Mapping[str, str] = {
    "mask_create": "mask create",
    "mask_apply": "mask apply",
    "rope": "RoPE",
    "qkv": "QKV",
    "o_proj": "output proj.",
    "attention_fused": "fused attention",
    "mlp": "MLP",
    "lm_head": "LM head",
    "final_norm": "final norm",
}
"""What a phase is called where its own name does not say it."""

LEVELS = {"minor": 0.0, "moderate": 0.05, "critical": 0.10}
"""The execution plan's words for a share. Critical is above 10 %, moderate from 5 to 10 %, minor below 5 %."""


@dataclass(frozen=True)
class Share:
    """A part of a whole, 0 to 1, with its interval and standard error."""

    value: float
    low: float
    high: float
    rounds: int
    error: float
    seconds: float = 0.0  # of the calls, marked and plain


def share(table: Table, workload: str, variant: str, phases: Sequence[str], of: str, alpha: float = ALPHA) -> Share:
    """Share of `phases` in the denominator `of` (a key of DENOMINATORS), from rows of phases.parquet.

    A phase that never ran counts 0. Raises ValueError: no rows; an unknown phase or denominator; a phase outside the
    denominator; one that is part of a fused attention kernel.
    """
    part = _interval(_shares_of_rounds(_rounds(table, workload, variant), phases, of), alpha)
    marked_ns, plain_ns, _ = _calls(_rows(table, workload, variant))
    return replace(part, seconds=float(marked_ns.sum() + plain_ns.sum()) / 1e9)


def overhead(table: Table, workload: str, variant: str, alpha: float = ALPHA) -> Share:
    """Time of the marked calls over that of the plain ones, with its interval; 1 means that marking costs nothing."""
    marked_ns, plain_ns, rounds = _calls(_rows(table, workload, variant))
    return _interval(_medians(marked_ns, rounds) / _medians(plain_ns, rounds), alpha, most=math.inf)


def times_ns(table: Table, workload: str, variant: str) -> dict[str, float]:
    """Nanoseconds of a marked call by phase, for every phase that ran: median over rounds of the round's medians.

    Where lengths differ, it is the mean over them. Medians do not add up exactly to the median of the whole call.
    """
    lengths = len(set(_rows(table, workload, variant)["tokens"].tolist()))
    rounds = _rounds(table, workload, variant)
    medians = {phase: float(np.median(ns)) / lengths for phase, ns in rounds.items()}
    return {phase: ns for phase, ns in medians.items() if ns > 0}


def top_consumers(
    table: Table, workload: str, variant: str, of: str = "forward", alpha: float = ALPHA
) -> dict[str, Share]:
    """The share of every phase that ran, largest first."""
    rounds = _rounds(table, workload, variant)
    ran = [phase for phase in DENOMINATORS[of] if rounds[phase].any()]
    parts = {phase: _interval(_shares_of_rounds(rounds, [phase], of), alpha) for phase in ran}
    return dict(sorted(parts.items(), key=lambda item: -item[1].value))


def levels(low: float, high: float) -> str:
    """Every level that the ends of an interval allow: "minor or moderate"."""
    words = list(LEVELS)
    first, last = (2 if end > LEVELS["critical"] else int(end >= LEVELS["moderate"]) for end in (low, high))
    return " or ".join(words[first : last + 1])


def _rows(table: Table, workload: str, variant: str) -> Table:
    rows = table.where(workload=workload, variant=variant)
    if not len(rows):
        raise ValueError(f"no phases of {variant} on {workload}")
    return rows


def _calls(rows: Table) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Of each call its time in nanoseconds, that of the plain one, and a number for the round it is of."""
    _, first, call = np.unique(rows.keys("process", "round", "call"), return_index=True, return_inverse=True)
    return (
        _sums(call, rows["ns"]),
        rows["plain_ns"][first].astype(np.float64),
        rows.keys("process", "round")[first],
    )


def _rounds(table: Table, workload: str, variant: str) -> dict[str, NDArray[np.float64]]:
    """Phase → nanoseconds of each round: the median over its calls of one length, summed over the lengths."""
    rows = _rows(table, workload, variant)
    _, first, call = np.unique(rows.keys("process", "round", "tokens", "call"), return_index=True, return_inverse=True)
    lengths, rounds = rows.keys("process", "round", "tokens")[first], rows.keys("process", "round")[first]
    first_of_length = np.unique(lengths, return_index=True)[1]
    of_length = np.unique(rounds[first_of_length], return_inverse=True)[1]
    return {
        phase: _sums(of_length, _medians(_sums(call, rows["ns"] * rows.names("phase").are(phase)), lengths))
        for phase in PHASES
    }


def _sums(groups: NDArray[np.intp], values: NDArray[Any]) -> NDArray[np.float64]:
    """The sum of the values of each group, by its number."""
    return np.bincount(groups, values).astype(np.float64)


def _medians(values: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """The median of the values of each group, in the order of their numbers."""
    return np.array([np.median(values[groups == group]) for group in np.unique(groups)])


def _shares_of_rounds(rounds: Mapping[str, NDArray[np.float64]], phases: Sequence[str], of: str) -> NDArray[np.float64]:
    if of not in DENOMINATORS:
        raise ValueError(f"no denominator {of!r}; there are {', '.join(DENOMINATORS)}")
    whole = DENOMINATORS[of]
    for phase in phases:
        if phase not in MEANING:
            raise ValueError(f"no phase {phase!r}; there are {', '.join(PHASES)}")
        if phase not in whole:
            raise ValueError(f"phase {phase!r} is no part of {of!r}, which is {', '.join(whole)}")
    wanted = FUSED_PARTS & set(phases)
    if wanted and wanted != FUSED_PARTS and rounds["attention_fused"].any():
        raise ValueError(f"attention is one kernel here: {', '.join(sorted(wanted))} cannot be told apart in it")
    columns = dict.fromkeys((*phases, *(["attention_fused"] if wanted else [])))
    return _sum(rounds, columns) / _sum(rounds, whole)


def _sum(rounds: Mapping[str, NDArray[np.float64]], phases: Iterable[str]) -> NDArray[np.float64]:
    """Nanoseconds of these phases in each round."""
    return np.sum([rounds[phase] for phase in phases], axis=0, dtype=np.float64)


def _interval(values: NDArray[np.float64], alpha: float, most: float = 1.0) -> Share:
    """t interval for the mean; with fewer than two rounds it is everything that could be."""
    interval = fixed_interval(values, alpha)
    error = float(np.std(values, ddof=1)) / math.sqrt(interval.n) if interval.n > 1 else math.inf
    return Share(interval.centre, max(0.0, interval.low), min(most, interval.high), interval.n, error)


# -- the phases of a profiler's samples --------------------------------------------------------------------------------

Lines = Mapping[str, Mapping[str, Sequence[Sequence[str]]]]
"""File (as harness/machine/places.py names it) → line → [phases of its own code, phases of what it calls]."""


_PLACE = re.compile(r"(.*) \(([^()]*):(\d{1,9})\)(?: \d+)?")  # the innermost frame stands before the count


def lines_in_sources(frames: Iterable[str], attention: str = "sdpa", known: Collection[str] = ()) -> Lines:
    """File → line → phases, as the sources here say it of the frames of a profile, but for `known` files. attention:
    the kind that the library's model computes, which decides what its lines are."""
    places: dict[str, set[tuple[str, int]]] = {}
    for parts in map(_PLACE.fullmatch, frames):
        if parts and parts[2] not in known:
            places.setdefault(parts[2], set()).add((parts[1].rpartition(".")[2], int(parts[3])))
    read = [face.lines_in_sources(places, attention) for face in faces("lines")]
    return {file: lines for by_file in read for file, lines in by_file.items()}


def stacks_of_calls(folded: str) -> Iterator[tuple[list[str], int]]:
    """The stacks of a profile with their samples, without those outside the call."""
    for line in folded.splitlines():
        stack, _, count = line.rpartition(" ")
        if count.isdigit() and not _is_outside(stack):
            yield stack.split(";"), int(count)


def calls_alone(folded: str) -> str:
    """The same profile without the stacks outside the call, whose time is no part of a call's."""
    lines = folded.splitlines(keepends=True)
    return "".join(line for line in lines if not _is_outside(line))


def _is_outside(line: str) -> bool:
    first = line.partition(";")[0]
    return first.startswith("_profiled_call ") or ".prepare " in f"{first} "


def phases_of_stack(frames: Sequence[str], lines: Lines) -> tuple[frozenset[str], int]:
    """The phases that a stack may belong to, and the place of the frame whose line says so (-1: none does).

    From the leaf upwards, the first line that the map knows decides; a line of several phases is narrowed down by the
    functions between it and the leaf (FRAMES), if they can.
    """
    hints: frozenset[str] | None = None
    for depth, frame in enumerate(reversed(frames)):
        function, _, place = frame.rpartition(" (")
        file, _, number = place.rstrip(")").rpartition(":")
        if file in lines and number in lines[file]:
            own, called = (frozenset(part) for part in lines[file][number])
            narrowed = (own | called) & hints if depth and hints else frozenset[str]()
            return narrowed or own or frozenset({OTHER}), len(frames) - 1 - depth
        if function in FRAMES:
            hint = frozenset(FRAMES[function])
            hints = hint if hints is None else hints & hint or hints
    return frozenset({OTHER}), -1


def groups_of(sets: Iterable[frozenset[str]]) -> dict[str, frozenset[str]]:
    """Each phase → all that one of the sides cannot tell from it."""
    of_stacks = list(sets)
    fused = [ATTENTION] if any("attention_fused" in phases for phases in of_stacks) else []
    return {phase: group for group in merged_sets([*of_stacks, *fused]) for phase in group}


def merged_sets(sets: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """The sets, with those that overlap put together."""
    groups: list[frozenset[str]] = []
    for members in sets:
        apart = [group for group in groups if not group & members]
        groups = [*apart, members.union(*(group for group in groups if group & members))]
    return groups
