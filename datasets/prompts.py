"""Prompts by number: the same number gives the same prompt in every process, and no call is given one that was used.

A variant that remembers prompts would otherwise be paid for remembering. The process that times calls and the one that
judges their outputs (`examiner`) both cut the prompts themselves, so neither has to believe the other.

Importing this module does not import torch.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

DRAWN = 4
"""The first words of a prompt are drawn one by one, so that no two prompts begin alike; text follows."""


class Prompts:
    """Prompts cut from a text: `ids` are the text's words, `draw` says which prompts a number stands for.

    `draw` must be one that no variant can know beforehand, or answers could lie ready on a disk. `repeated`: every
    number gives the same prompt, for workloads that ask for it.
    """

    def __init__(self, ids: NDArray[np.int32], *, batch: int, draw: str, repeated: bool = False) -> None:
        self._ids = ids
        self._batch = batch
        self._draw = draw
        self._repeated = repeated
        self._next = 0

    def take(self, count: int = 1) -> int:
        """The first of `count` numbers in a row that nobody had before."""
        first, self._next = self._next, self._next + count
        return first

    def tokens(self, number: int, length: int) -> NDArray[np.int64]:
        """Token ids [B, length] of one prompt; a longer one begins with the shorter one of the same number."""
        rng = random.Random(f"{self._draw} {0 if self._repeated else number}")
        rows = []
        for _ in range(self._batch):
            start = rng.randrange(len(self._ids))
            row = self._ids.take(np.arange(start, start + max(length, DRAWN)), mode="wrap")
            row[:DRAWN] = self._ids[[rng.randrange(len(self._ids)) for _ in range(DRAWN)]]
            rows.append(row[:length])
        return np.stack(rows).astype(np.int64)
