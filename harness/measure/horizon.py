"""How many lives a budget should give, by costs alone: along them alpha is spent (see `stats.confidence`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..spec.comparison import Comparison
from .apart import can_be_apart, round_seconds
from .groups import Group
from .participants import ExperimentState

START_SECONDS, TORCH_START_SECONDS = 0.25, 3.0
"""What beginning a life takes, about: without torch, and with it."""

LEAST_LIVES, MOST_LIVES = 16, 400

FIRST_LIVES, SETTLED_SHARE = 12, 0.5
"""After so many lives about so many of several pairs are settled, and leave their time to the others."""


def set_horizons(groups: Sequence[Group], seconds: float) -> None:
    """Give every experiment that has none yet the number of lives that its pairs should have after so many seconds."""
    one_each = sum(_seconds_for_one(group) for group in groups)
    lives = seconds / one_each if one_each else math.inf
    if sum(len(_pairs(book)) for group in groups for book in group.books) > 1 and lives > FIRST_LIVES:
        lives = FIRST_LIVES + (lives - FIRST_LIVES) / (1 - SETTLED_SHARE)
    for book in (book for group in groups for book in group.books):
        book.horizon = book.horizon or int(min(max(lives, LEAST_LIVES), MOST_LIVES))


def _seconds_for_one(group: Group) -> float:
    """For a life in which everything of the group has a round. The next one is begun meanwhile, where that can be."""
    rounds = sum(_round_seconds(book) for book in group.books)
    return max(rounds, TORCH_START_SECONDS if group.torch else START_SECONDS)


def _round_seconds(book: ExperimentState) -> float:
    apart = [pair for pair in _pairs(book) if can_be_apart(book, pair)]
    together = len(apart) < len(_pairs(book))
    return sum(round_seconds(book, pair) for pair in apart) + together * round_seconds(book)


def _pairs(book: ExperimentState) -> set[Comparison]:
    return {target.comparison for target in book.remaining().targets}
