"""A regular expression on lines of text."""

from __future__ import annotations

import random
import re

REPEATS = 20

ENTRY = re.compile(r"(\w+)=(\d+)(?:\.(\d+))?")

BASE = 7


def fixed(seed: int) -> str:
    """A line of 25 entries."""
    return line(random.Random(seed), 25)


def mixed(seed: int) -> str:
    """A line of 12 to 38 entries."""
    draw = random.Random(seed)
    return line(draw, draw.randint(12, 38))


def line(draw: random.Random, length: int) -> str:
    """So many entries."""
    return ", ".join([f"k{number % 50}={number}.{number % 9}" for number in draw.choices(range(10_000), k=length)])


def value(found: re.Match[str]) -> int:
    """Of one entry."""
    return int(found[2]) * BASE + int(found[3] or 0)


def total(given: str) -> int:
    """Of all entries in a line."""
    return sum([value(found) for found in ENTRY.finditer(given)])


def work(given: str) -> int:
    """Of the line."""
    for _ in range(REPEATS):
        answer = total(given)
    return answer
