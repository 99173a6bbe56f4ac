"""A few steps on a few numbers: calls of microseconds."""

from __future__ import annotations

import random

LENGTH = 3

SLOPE, LIFT = 1.5, 0.25


def made(draw: random.Random, length: int) -> list[float]:
    """So many numbers."""
    return [draw.random() for _ in range(length)]


def lifted(number: float) -> float:
    """One number on a line."""
    return number * SLOPE + LIFT


def once(numbers: list[float]) -> float:
    """From the first to the last."""
    return lifted(numbers[-1]) - numbers[0]
