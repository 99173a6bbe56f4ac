"""Two profiles of one workload with the times that the run measured in pairs, and by phase.

By phase: below each phase what it called, so that variants of different code lie on each other. A stack belongs to the
phase of the innermost line that is known to have one; the frames above that line are dropped. Frames of variants count
as the same where their functions have the same name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from llama_workbench.harness.metrics.share.shares import (
    LIBRARY_FILE,
    Lines,
    LinesOfFile,
    lines_in_sources,
    merged_sets,
    phases_of_stack,
    stacks_of_calls,
)
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.verdict_schema import Effect
from llama_workbench.variants.phase_map import FUSED_PARTS, OTHER, PHASES

from ..views import breakdown, data, samples
from .tree import Frame, read_folded

Times = tuple[float, float | None]
"""Nanoseconds of a call, and the standard error."""


@dataclass(frozen=True)
class Pair:
    """Both sides of a difference. paired: the change of the time in the run's rounds, None where it has none.

    unaligned: the sides whose code is in no known phase; both trees are then by function.
    """

    before: data.Profile
    after: data.Profile
    paired: Effect | None
    unaligned: tuple[str, ...]


PairedTimes = tuple[Effect, Times, Times]
"""The ratio that was measured, and the times of baseline and variant that fit it."""


def paired_times(run: data.Run, workload: str, baseline: str, variant: str) -> PairedTimes | None:
    """The ratio of two variants in the rounds that they shared, and the time of a call of each that fits it.

    The baseline's is the typical one. The variant's is that over the ratio, and has all the error of the ratio, so that
    the difference of both is the difference measured. None where they shared no rounds.
    """
    try:
        paired = samples.pair(run, workload, variant, baseline, "time", run.alpha)
    except (RunError, KeyError, ValueError):
        return None
    count, ratio = len(paired.ratios), paired.effect.value
    if count < 2 or not ratio or not paired.baseline_ns:
        return None
    ns = paired.baseline_ns / ratio
    error = float(np.std(np.log(paired.ratios), ddof=1)) / math.sqrt(count)
    return paired.effect, (paired.baseline_ns, None), (ns, ns * error)


def timed(profile: data.Profile, times: Times) -> data.Profile:
    """The same profile with another time of a call."""
    ns, error_ns = times
    return replace(profile, row=profile.row.model_copy(update={"median_ns": ns, "median_error_ns": error_ns}))


def read_pair(run: data.Run, workload: str, baseline: str, variant: str, times: PairedTimes | None) -> Pair:
    """Both profiles, which must exist, with the times that were measured in pairs."""
    profiles = [data.read_profile(run, workload, side) for side in (baseline, variant)]
    before, after = (profile for profile in profiles if profile is not None)
    if times is not None:
        before, after = (timed(profile, each) for profile, each in zip((before, after), times[1:], strict=True))
    phases = breakdown.read(run)
    texts = {side: data.profile_text(run, workload, side) for side in (baseline, variant)}
    stacks = {side: phase_stacks(text, phase_lines(phases, side, text)) for side, text in texts.items()}
    unaligned = tuple(side for side, found in stacks.items() if not found)
    if not unaligned:
        roots = phase_trees(*stacks.values())
        before, after = (replace(each, root=root) for each, root in zip((before, after), roots, strict=True))
    return Pair(before, after, times and times[0], unaligned)


# -- by phase --------------------------------------------------------------------------------------------------------

LEAST_KNOWN = 0.5
"""Share of the samples that must have a phase with a name."""

FUSED = "attention_fused"
_ATTENTION = FUSED_PARTS | {FUSED}
_OURS = re.compile(r"(.*) \((?:variants|added)/[^()]*\)")

Stacks = Sequence[tuple[frozenset[str], Sequence[str], int]]
"""The phases that a stack may belong to, the frames below, and its samples."""


def phase_stacks(folded: str, lines: Lines) -> Stacks:
    """The stacks of a profile's calls by phase; nothing where too few have one."""
    stacks = []
    for frames, count in stacks_of_calls(folded):
        phases, place = phases_of_stack(frames, lines)
        phases = phases - {OTHER} or phases  # a residual addition on a phase's line counts with it
        below = frames[place + 1 :] if place >= 0 else ()
        stacks.append((phases, [_OURS.sub(r"\1 (variants)", frame) for frame in below], count))
    total = sum(count for *_, count in stacks)
    named = sum(count for phases, _, count in stacks if phases != {OTHER})
    return stacks if total and named >= LEAST_KNOWN * total else ()


def phase_trees(*sides: Stacks) -> list[Frame]:
    """A tree for each side, its phases outermost: those that one of the sides cannot tell apart are one box."""
    sets = [phases for side in sides for phases, *_ in side]
    if any(FUSED in phases for phases in sets):
        sets.append(_ATTENTION)  # one side runs in a kernel what the other runs in four
    groups = {phase: group for group in merged_sets(sets) for phase in group}
    return [read_folded("".join(_line(*stack, groups) for stack in side)) for side in sides]


def _line(phases: frozenset[str], below: Sequence[str], count: int, groups: dict[str, frozenset[str]]) -> str:
    group = groups[min(phases)]
    own = [] if phases == group else [_name(phases)]
    return f"{';'.join([_name(group), *own, *below])} {count}\n"


def _name(phases: frozenset[str]) -> str:
    """The phases in words, in the order of a forward."""
    if phases == _ATTENTION:
        return "attention from mask to output"
    return " + ".join(breakdown.NAMES.get(phase, phase) for phase in PHASES if phase in phases)


_PLACE = re.compile(r"(.*) \(([^()]*):(\d{1,9})\)(?: \d+)?")  # the innermost frame stands before the count


def phase_lines(phases: breakdown.Phases, variant: str, stacks: str) -> Lines:
    """File → line → phases, for the files of a variant's profile: as a run recorded it, else as the source here says.

    A run records it for the variants that a claim about shares names.
    """
    recorded: dict[str, LinesOfFile] = {}
    for (_, name), fact in phases.facts.items():
        for file, known in fact.lines.items():
            if name == variant or file != LIBRARY_FILE:  # the kind of attention decides what its lines are
                recorded.setdefault(file, {line: [own, called] for line, (own, called) in known.items()})
    places: dict[str, set[tuple[str, int]]] = {}
    for frame in set(re.split(r"[;\n]", stacks)):
        if parts := _PLACE.fullmatch(frame):
            function, file, line = parts.groups()
            if file not in recorded:
                places.setdefault(file, set()).add((function.rpartition(".")[2], int(line)))
    return {**recorded, **lines_in_sources(places, "eager" if "eager_attention_forward (" in stacks else "sdpa")}
