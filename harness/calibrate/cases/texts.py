"""Strings that are formatted and joined."""

from __future__ import annotations

import random

REPEATS = 20

SEPARATOR = "; "

WIDTH = 6


def fixed(seed: int) -> list[int]:
    """Fifty numbers."""
    return random.Random(seed).choices(range(100_000), k=50)


def mixed(seed: int) -> list[int]:
    """Twenty-five to 75 numbers."""
    draw = random.Random(seed)
    return draw.choices(range(100_000), k=draw.randint(25, 75))


def cell(number: int) -> str:
    """One number in a table."""
    return f"{number:>{WIDTH}} {number % 97:x}"


def line(numbers: list[int]) -> str:
    """All of them in a row."""
    return SEPARATOR.join([cell(number) for number in numbers])


def work(numbers: list[int]) -> int:
    """The length of the row, in capitals."""
    for _ in range(REPEATS):
        answer = len(line(numbers).upper().replace(" ", ""))
    return answer
