"""Whole numbers and floating point in list comprehensions."""

from __future__ import annotations

import math
import random

LENGTH = 150

SCALE, SHIFT = 0.37, 1.25


def made(draw: random.Random, length: int) -> list[float]:
    """So many numbers."""
    return [draw.random() for _ in range(length)]


def curved(numbers: list[float]) -> list[float]:
    """Each on a curve."""
    return [(number * SCALE + SHIFT) * number for number in numbers]


def once(numbers: list[float]) -> float:
    """All on the curve in one."""
    return math.fsum([number - int(number) for number in curved(numbers)])
