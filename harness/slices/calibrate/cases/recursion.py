"""A function that calls itself."""

from __future__ import annotations

import random

LENGTH = 160

LEAST = 2


def made(draw: random.Random, length: int) -> list[int]:
    """So many numbers."""
    return draw.choices(range(1000), k=length)


def leaf(numbers: list[int], low: int, high: int) -> int:
    """The sum of a few."""
    return sum(numbers[low:high])


def halves(numbers: list[int], low: int, high: int) -> int:
    """The sum of both halves, with a remainder at each step."""
    if high - low <= LEAST:
        return leaf(numbers, low, high)
    middle = (low + high) // 2
    return halves(numbers, low, middle) + halves(numbers, middle, high) % 10_007


def once(numbers: list[int]) -> int:
    """That of all."""
    return halves(numbers, 0, len(numbers))
