"""Which line of a variant's source belongs to which phase: as a run recorded it, else as the source here says.

A run records it for the variants that a claim about shares names.
"""

from __future__ import annotations

import re

from llama_workbench.harness.metrics.share.shares import Lines
from llama_workbench.harness.metrics.share.source_lines import LIBRARY_FILE, LinesOfFile, lines_in_sources

from . import breakdown

_PLACE = re.compile(r"(.*) \(([^()]*):(\d{1,9})\)(?: \d+)?")  # the innermost frame stands before the count


def phase_lines(phases: breakdown.Phases, variant: str, stacks: str) -> Lines:
    """File → line → phases, for the files of a variant's profile."""
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
