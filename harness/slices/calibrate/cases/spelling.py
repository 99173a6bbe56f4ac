"""How far two words lie apart, by a table of all their letters: calls of some ten milliseconds."""

from __future__ import annotations

import random

LENGTH = 40

LETTERS = "etaoinshr"


def made(draw: random.Random, length: int) -> list[str]:
    """Two words of so many letters."""
    return ["".join(draw.choices(LETTERS, k=length)) for _ in range(2)]


def following(above: list[int], letter: str, word: str) -> list[int]:
    """A row of the table from that above it."""
    row = [above[0] + 1]
    for place, other in enumerate(word):
        kept = above[place] + (letter != other)
        row.append(min(kept, above[place + 1] + 1, row[place] + 1))
    return row


def once(words: list[str]) -> int:
    """The least number of letters to change, to put in and to take away."""
    first, second = words
    row = list(range(len(second) + 1))
    for letter in first:
        row = following(row, letter, second)
    return row[-1]
