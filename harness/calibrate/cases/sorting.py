"""Sorting by a key of one's own."""

from __future__ import annotations

import random

REPEATS = 20

MODULUS = 101


def fixed(seed: int) -> list[int]:
    """A hundred and fifty numbers."""
    return random.Random(seed).choices(range(100_000), k=150)


def mixed(seed: int) -> list[int]:
    """Seventy-five to 225 numbers."""
    draw = random.Random(seed)
    return draw.choices(range(100_000), k=draw.randint(75, 225))


def rank(number: int) -> tuple[int, int]:
    """Where a number belongs."""
    return number % MODULUS, -number


def ordered(numbers: list[int]) -> list[int]:
    """By rank."""
    return sorted(numbers, key=rank)


def work(numbers: list[int]) -> int:
    """The one in the middle."""
    for _ in range(REPEATS):
        answer = ordered(numbers)[len(numbers) // 2]
    return answer
