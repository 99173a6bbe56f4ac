"""Words that are counted in a dict."""

from __future__ import annotations

import random

REPEATS = 20

SYLLABLES = ("ka", "lo", "mi", "ne", "ru", "sa", "to", "vi")

SHORT = 5


def fixed(seed: int) -> str:
    """A text of 120 words."""
    return text(random.Random(seed), 120)


def mixed(seed: int) -> str:
    """A text of 60 to 180 words."""
    draw = random.Random(seed)
    return text(draw, draw.randint(60, 180))


def text(draw: random.Random, length: int) -> str:
    """So many words."""
    return " ".join(map("".join, zip(*[draw.choices(SYLLABLES, k=length) for _ in range(3)], strict=True)))


def counted(given: str) -> dict[str, int]:
    """How often each word stands in a text."""
    counts: dict[str, int] = {}
    for word in given.split():
        counts[word] = counts.get(word, 0) + 1
    return counts


def score(counts: dict[str, int]) -> int:
    """One number for all counts."""
    return sum([count * count for word, count in counts.items() if len(word) > SHORT])


def work(given: str) -> int:
    """The score of a text."""
    for _ in range(REPEATS):
        answer = score(counted(given))
    return answer
