"""A function that calls itself."""

from __future__ import annotations

import random

REPEATS = 20

LEAST = 2


def fixed(seed: int) -> list[int]:
    """A hundred and sixty numbers."""
    return random.Random(seed).choices(range(1000), k=160)


def mixed(seed: int) -> list[int]:
    """Eighty to 240 numbers."""
    draw = random.Random(seed)
    return draw.choices(range(1000), k=draw.randint(80, 240))


def leaf(numbers: list[int], low: int, high: int) -> int:
    """The sum of a few."""
    return sum(numbers[low:high])


def halves(numbers: list[int], low: int, high: int) -> int:
    """The sum of both halves, with a remainder at each step."""
    if high - low <= LEAST:
        return leaf(numbers, low, high)
    middle = (low + high) // 2
    return halves(numbers, low, middle) + halves(numbers, middle, high) % 10_007


def work(numbers: list[int]) -> int:
    """That of all."""
    for _ in range(REPEATS):
        answer = halves(numbers, 0, len(numbers))
    return answer
