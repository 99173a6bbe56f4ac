"""Look-ups of fixed keys in a dict."""

from __future__ import annotations

import random

REPEATS = 20

FACTORS = {"width": 3, "height": 5, "depth": 7, "weight": 11, "margin": 13}


def fixed(seed: int) -> list[int]:
    """A hundred numbers."""
    return random.Random(seed).choices(range(1000), k=100)


def mixed(seed: int) -> list[int]:
    """Fifty to 150 numbers."""
    draw = random.Random(seed)
    return draw.choices(range(1000), k=draw.randint(50, 150))


def volume(number: int) -> int:
    """Of one number."""
    return number * FACTORS["width"] + FACTORS["height"] * FACTORS["depth"]


def cost(number: int) -> int:
    """Of one number."""
    return number * FACTORS["weight"] - FACTORS["margin"]


def work(numbers: list[int]) -> int:
    """A sum over all numbers."""
    for _ in range(REPEATS):
        total = 0
        for number in numbers:
            total += volume(number) - cost(number)
    return total
