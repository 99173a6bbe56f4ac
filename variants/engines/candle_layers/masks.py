"""Causal masks [T, S], added to the scores: made in each layer and call, or kept by (T, S).

The worker's key was T alone, which is wrong as soon as a prompt comes in chunks.
"""

from __future__ import annotations

from typing import Any, Protocol

import candle

HIGHEST = 65504.0
"""Of float16: taken off a score it leaves no weight, and it is a number in every type."""


def positions(length: int, kv_length: int) -> tuple[Any, Any]:
    """Of the queries, and of the keys, [T, S] each."""
    rows = candle.Tensor(list(range(kv_length - length, kv_length))).reshape((length, 1))
    columns = candle.Tensor(list(range(kv_length))).reshape((1, kv_length))
    shape = (length, kv_length)
    return rows.broadcast_as(shape), columns.broadcast_as(shape)


def additive_mask(length: int, kv_length: int, dtype: Any) -> Any:
    """0, or -inf where the key lies after the query."""
    rows, columns = positions(length, kv_length)
    shape = (length, kv_length)
    later = columns > rows
    lowest = candle.Tensor([float("-inf")]).to_dtype(dtype).broadcast_as(shape)
    return later.where_cond(lowest, candle.zeros(shape, dtype=dtype))


class Masks(Protocol):
    """Whoever has the masks: FreshMasks, PromptMasks, KeptMasks, or the Cache."""

    def get(self, length: int, kv_length: int) -> Any:
        """The mask for one layer, or None where none is added."""


class FreshMasks:
    """A new mask in each layer and call; at decode zeros, which are added as any other (the worker before).

    Theirs was filled by a compiled loop. The bindings have no loop to fill a tensor, so a compiled pass fills the new
    buffer with what is kept for it here.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.made: dict[tuple[int, int], Any] = {}

    def get(self, length: int, kv_length: int) -> Any:
        if length == 1:
            return candle.zeros((1, kv_length), dtype=self.dtype)
        key = (length, kv_length)
        if key not in self.made:
            self.made[key] = additive_mask(*key, self.dtype)
        return self.made[key].copy()


class PromptMasks:
    """A new mask in each layer and call of a prompt, none at decode (TEAM-008's last state). It takes the four
    operations that theirs took: which keys are seen, in the type of the scores, less one, times the highest."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    def get(self, length: int, kv_length: int) -> Any:
        if length == 1:
            return None
        rows, columns = positions(length, kv_length)
        seen = (columns <= rows).to_dtype(self.dtype)
        return (seen - 1.0).broadcast_mul(candle.Tensor([HIGHEST]).to_dtype(self.dtype))


class KeptMasks:
    """A dict; at decode none (the worker after, with a dict in each Attention)."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.masks: dict[tuple[int, int], Any] = {}

    def get(self, length: int, kv_length: int) -> Any:
        if length == 1:
            return None
        key = (length, kv_length)
        if key not in self.masks:
            self.masks[key] = additive_mask(*key, self.dtype)
        return self.masks[key]
