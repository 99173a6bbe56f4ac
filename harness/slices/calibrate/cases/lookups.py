"""Look-ups of fixed keys in a dict."""

from __future__ import annotations

import random

LENGTH = 100

FACTORS = {"width": 3, "height": 5, "depth": 7, "weight": 11, "margin": 13}


def made(draw: random.Random, length: int) -> list[int]:
    """So many numbers."""
    return draw.choices(range(1000), k=length)


def volume(number: int) -> int:
    """Of one number."""
    return number * FACTORS["width"] + FACTORS["height"] * FACTORS["depth"]


def cost(number: int) -> int:
    """Of one number."""
    return number * FACTORS["weight"] - FACTORS["margin"]


def once(numbers: list[int]) -> int:
    """A sum over all numbers."""
    total = 0
    for number in numbers:
        total += volume(number) - cost(number)
    return total
