"""Each effect by machine kind and over machines, as lines of text. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..evidence.effect import percent
from ..store.verdict_schema import OverMachines, Pooled, Verdict
from .markdown import markdown_cell, markdown_rows
from .outcome import verdict_text
from .text import claim_text, measured_text, one_text_line, short


def machine_lines(over: Sequence[OverMachines]) -> list[str]:
    """A heading, and for each effect that several machines measured a line a kind, their mean and their spread.

    Empty where there is no such effect. An effect that several parts of claims ask about comes once.
    """
    lines = [line for row in _each_once(over) for line in _block(row)]
    return ["By machine, and over machines:", *lines] if lines else []


def _block(row: OverMachines) -> Iterator[str]:
    sides = " against ".join(filter(None, (row.variant, row.baseline)))
    place = row.workload or row.metric
    yield f"  {one_text_line(f'{place}: {sides}' if sides and row.workload else place)}"
    names = [kind.kind + (f" ({len(kind.machines)} machines)" if len(kind.machines) > 1 else "") for kind in row.kinds]
    width = max(map(len, names))
    for kind, name in zip(row.kinds, names, strict=True):
        yield f"    {one_text_line(name):<{width}}  {pooled_text(kind, row.unit)}"
    count = machine_count(row)
    yield f"    mean of these {count} machines: {pooled_text(row.mean, row.unit)}; {spread_text(row)}"


def machine_count(row: OverMachines) -> int:
    """How many machines measured it."""
    return sum(len(kind.machines) for kind in row.kinds)


def pooled_text(pooled: Pooled | None, unit: str) -> str:
    """ "1.013x [1.009, 1.018]", or a value in its unit; "no interval" where it has none."""
    if pooled is None:
        return "no interval"
    return measured_text(_known(pooled.ratio), _known(pooled.low), _known(pooled.high), unit)


def _known(number: float) -> float | None:
    return number if math.isfinite(number) else None


def spread_text(row: OverMachines) -> str:
    """How much the machines differ, beyond what their intervals are wide."""
    if math.isnan(row.spread):
        return "how much they differ is not known yet"
    size = f"{short(row.spread)} {row.unit}" if row.unit else percent(math.expm1(row.spread))
    text = "no difference between them shows" if not row.spread else f"they differ by {size} (standard deviation)"
    return text + ("; two have intervals without a common point" if row.apart else "")


def machine_markdown(verdicts: Sequence[Verdict], over: Sequence[OverMachines]) -> str:
    """A table of the verdicts with why, and each effect by machine kind and over machines."""
    verdict_rows = [
        [markdown_cell(claim_text(each)), f"**{markdown_cell(verdict_text(each))}**", markdown_cell(each.reason)]
        for each in verdicts
    ]
    parts = ["## Verdicts over machines\n", markdown_rows(("claim", "verdict", "why"), verdict_rows)]
    if lines := machine_lines(over):
        parts += [f"\n## {lines[0]}\n", "```", *lines[1:], "```\n"]
    return "\n".join(parts)


def _each_once(over: Sequence[OverMachines]) -> list[OverMachines]:
    """What several machines measured; an effect that several parts of claims ask about comes once."""
    known: dict[tuple[str, ...], OverMachines] = {}
    for row in over:
        if row.mean is not None:
            known.setdefault((row.workload, row.variant, row.baseline, row.metric), row)
    return list(known.values())
