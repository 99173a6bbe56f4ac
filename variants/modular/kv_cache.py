"""One layer's keys and values of the tokens so far: two ways to store them."""

from __future__ import annotations

import torch
from torch import Tensor


class PreallocatedKV:
    """One buffer [B, Hkv, max, D] each, written in place; attention sees a view of the used part.

    As in meta's reference code and candle_nn's KvCache. The buffers are made at the first call, when the batch size is
    known, and kept over `reset`.
    """

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length
        self.k: Tensor | None = None
        self.v: Tensor | None = None

    def append(self, k: Tensor, v: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """k, v [B, Hkv, T, D] of positions [position, position + T) → all keys and values [B, Hkv, position + T, D]."""
        batch, heads, length, head_dim = k.shape
        if self.k is None or self.v is None or self.k.shape[0] != batch:
            self.k = torch.empty(batch, heads, self.max_length, head_dim, dtype=k.dtype, device=k.device)
            self.v = torch.empty_like(self.k)
        self.k.narrow(2, position, length).copy_(k)
        self.v.narrow(2, position, length).copy_(v)
        return self.k.narrow(2, 0, position + length), self.v.narrow(2, 0, position + length)

    def reset(self) -> None:
        """Nothing to forget: positions beyond the next call's are never read."""


class CatKV:
    """Grown by concatenation at every call (Candle's Llama, Hugging Face's dynamic cache): copies all each time."""

    def __init__(self, max_length: int) -> None:
        self.k: Tensor | None = None
        self.v: Tensor | None = None

    def append(self, k: Tensor, v: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """As PreallocatedKV.append."""
        if self.k is None or self.v is None:
            self.k, self.v = k, v
        else:
            self.k = torch.cat((self.k, k), dim=2)
            self.v = torch.cat((self.v, v), dim=2)
        return self.k, self.v

    def reset(self) -> None:
        """Forget the sequence."""
        self.k = self.v = None


STORAGE: dict[str, type[PreallocatedKV] | type[CatKV]] = {"preallocated": PreallocatedKV, "cat": CatKV}
