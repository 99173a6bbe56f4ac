"""Two profiles by phase: below each phase what it called, so that variants of different code lie on each other.

A stack belongs to the phase of the innermost line that is known to have one; the frames above that line are dropped.
Frames of variants count as the same where their functions have the same name. Pure, no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from llama_workbench.harness.metrics.share.shares import Lines, merged_sets, phases_of_stack, stacks_of_calls
from llama_workbench.variants.phase_map import FUSED_PARTS, OTHER, PHASES

from ..views.breakdown import NAMES
from .tree import Frame, read_folded

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
    return " + ".join(NAMES.get(phase, phase) for phase in PHASES if phase in phases)
