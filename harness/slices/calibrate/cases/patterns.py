"""A regular expression on lines of text."""

from __future__ import annotations

import random
import re

LENGTH = 25

ENTRY = re.compile(r"(\w+)=(\d+)(?:\.(\d+))?")

BASE = 7


def made(draw: random.Random, length: int) -> str:
    """A line of so many entries."""
    return ", ".join([f"k{number % 50}={number}.{number % 9}" for number in draw.choices(range(10_000), k=length)])


def value(entry: re.Match[str]) -> int:
    """Of one entry."""
    return int(entry[2]) * BASE + int(entry[3] or 0)


def once(given: str) -> int:
    """Of all entries in a line."""
    return sum([value(found) for found in ENTRY.finditer(given)])
