"""The two sides of the dispute, as effects and claims name them."""

from __future__ import annotations

from collections.abc import Iterable

ARCHITECTURE, OPERATIONS, TOTAL = "architecture", "operations", "total"
"""The two sides of the split, and their sum: from the all-old corner of a grid to the all-new one."""

SIDES = (ARCHITECTURE, OPERATIONS, TOTAL)


def due_to(gaining: Iterable[str]) -> str:
    """What a speed-up is due to, by the sides that gain: one of them, both or neither."""
    names = tuple(gaining)
    return "both" if len(names) == 2 else names[0] if names else "neither"


def factor_of(variant: str, baseline: str) -> str:
    """The factor, interaction or side whose effect is reported as "NAME new" against "NAME old"; "" for other sides."""
    name = variant.removesuffix(" new")
    return name if (variant, baseline) == (f"{name} new", f"{name} old") else ""
