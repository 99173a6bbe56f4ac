"""Whole numbers and floating point in list comprehensions."""

from __future__ import annotations

import math
import random

REPEATS = 20

SCALE, SHIFT = 0.37, 1.25


def fixed(seed: int) -> list[float]:
    """A hundred and fifty numbers."""
    draw = random.Random(seed)
    return [draw.random() for _ in range(150)]


def mixed(seed: int) -> list[float]:
    """Seventy-five to 225 numbers."""
    draw = random.Random(seed)
    return [draw.random() for _ in range(draw.randint(75, 225))]


def curved(numbers: list[float]) -> list[float]:
    """Each on a curve."""
    return [(number * SCALE + SHIFT) * number for number in numbers]


def folded(numbers: list[float]) -> float:
    """All in one."""
    return math.fsum([number - int(number) for number in numbers])


def work(numbers: list[float]) -> float:
    """That of the curve."""
    for _ in range(REPEATS):
        answer = folded(curved(numbers))
    return answer
