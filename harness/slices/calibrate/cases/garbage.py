"""Objects that hold one another: the collector alone finds them once they are not needed."""

from __future__ import annotations

import random

LENGTH = 240

STEP = 7


class Bead:
    """Knows the one before it and the one behind it."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.before: Bead | None = None
        self.behind: Bead | None = None


def made(draw: random.Random, length: int) -> list[int]:
    """So many numbers."""
    return draw.choices(range(100), k=length)


def joined(values: list[int]) -> list[Bead]:
    """A bead for each number, in a ring."""
    beads = [Bead(value) for value in values]
    for place, bead in enumerate(beads):
        bead.before = beads[place - 1]
        beads[place - 1].behind = bead
    return beads


def once(values: list[int]) -> int:
    """A sum along the ring, which is garbage then."""
    bead, total = joined(values)[0], 0
    for _ in range(len(values)):
        following = bead.behind
        if following is not None:
            total += STEP * following.value - bead.value
            bead = following
    return total
