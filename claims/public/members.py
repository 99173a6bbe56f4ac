"""Is a word one of so many? Asked of a list, a set and a frozenset that are made once."""

from __future__ import annotations

import random

WORDS = [f"word-{number}" for number in range(1000)]

LIST_2, LIST_10, LIST_100 = WORDS[:2], WORDS[:10], WORDS[:100]
SET_2, SET_10, SET_100 = set(LIST_2), set(LIST_10), set(LIST_100)
FROZEN_2, FROZEN_10, FROZEN_100 = frozenset(LIST_2), frozenset(LIST_10), frozenset(LIST_100)


def asked(seed: int, known: int) -> list[str]:
    """A thousand words, half of them known."""
    draw = random.Random(seed)
    return [draw.choice(WORDS[:known]) if draw.random() < 0.5 else draw.choice(WORDS[500:]) for _ in range(1000)]


def of_2(seed: int) -> tuple[list[str], int]:
    return asked(seed, 2), 2


def of_10(seed: int) -> tuple[list[str], int]:
    return asked(seed, 10), 10


def of_100(seed: int) -> tuple[list[str], int]:
    return asked(seed, 100), 100


def in_list(words: list[str], known: int) -> int:
    members = {2: LIST_2, 10: LIST_10, 100: LIST_100}[known]
    return sum([word in members for word in words])


def in_set(words: list[str], known: int) -> int:
    members = {2: SET_2, 10: SET_10, 100: SET_100}[known]
    return sum([word in members for word in words])


def in_frozenset(words: list[str], known: int) -> int:
    members = {2: FROZEN_2, 10: FROZEN_10, 100: FROZEN_100}[known]
    return sum([word in members for word in words])
