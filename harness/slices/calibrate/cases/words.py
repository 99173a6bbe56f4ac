"""Words that are counted in a dict."""

from __future__ import annotations

import random

LENGTH = 120

SYLLABLES = ("ka", "lo", "mi", "ne", "ru", "sa", "to", "vi")

SHORT = 5


def made(draw: random.Random, length: int) -> str:
    """A text of so many words."""
    return " ".join(map("".join, zip(*[draw.choices(SYLLABLES, k=length) for _ in range(3)], strict=True)))


def counted(given: str) -> dict[str, int]:
    """How often each word stands in a text."""
    counts: dict[str, int] = {}
    for word in given.split():
        counts[word] = counts.get(word, 0) + 1
    return counts


def once(given: str) -> int:
    """One number for all counts."""
    return sum([count * count for word, count in counted(given).items() if len(word) > SHORT])
