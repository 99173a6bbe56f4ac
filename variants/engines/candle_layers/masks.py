"""Causal masks [T, S], added to the scores: made in each layer and call, or kept by (T, S).

The worker's key was T alone, which is wrong as soon as a prompt comes in chunks.
"""

from __future__ import annotations

from typing import Any, Protocol

import candle


def additive_mask(length: int, kv_length: int, dtype: Any) -> Any:
    """0, or -inf where the key lies after the query."""
    rows = candle.Tensor(list(range(kv_length - length, kv_length))).reshape((length, 1))
    columns = candle.Tensor(list(range(kv_length))).reshape((1, kv_length))
    shape = (length, kv_length)
    later = columns.broadcast_as(shape) > rows.broadcast_as(shape)
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


class PromptMasks(FreshMasks):
    """A new mask in each layer and call of a prompt, none at decode (TEAM-008's last state)."""

    def get(self, length: int, kv_length: int) -> Any:
        return None if length == 1 else super().get(length, kv_length)


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
