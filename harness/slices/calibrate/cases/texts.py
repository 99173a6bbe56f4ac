"""Strings that are formatted and joined."""

from __future__ import annotations

import random

LENGTH = 50

SEPARATOR = "; "

WIDTH = 6


def made(draw: random.Random, length: int) -> list[int]:
    """So many numbers."""
    return draw.choices(range(100_000), k=length)


def cell(number: int) -> str:
    """One number in a table."""
    return f"{number:>{WIDTH}} {number % 97:x}"


def once(numbers: list[int]) -> int:
    """The length of all of them in a row, in capitals."""
    return len(SEPARATOR.join([cell(number) for number in numbers]).upper().replace(" ", ""))
