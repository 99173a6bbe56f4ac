"""Sorting by a key of one's own."""

from __future__ import annotations

import random

LENGTH = 150

MODULUS = 101


def made(draw: random.Random, length: int) -> list[int]:
    """So many numbers."""
    return draw.choices(range(100_000), k=length)


def rank(number: int) -> tuple[int, int]:
    """Where a number belongs."""
    return number % MODULUS, -number


def once(numbers: list[int]) -> int:
    """The one in the middle, by rank."""
    return sorted(numbers, key=rank)[len(numbers) // 2]
