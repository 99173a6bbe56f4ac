"""The unified Cache: KV of every layer, RoPE tables and masks under one owner (as Candle's `Cache`)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..config import LlamaConfig
from .kv_cache import STORAGE
from .masks import POLICIES
from .rope import rope_parts


class Cache:
    """Plugs into the same three places as the split parts do: it answers `rows`, `begin`/`get`, and owns `kvs`."""

    def __init__(
        self,
        config: LlamaConfig,
        max_length: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        rope: str,
        kv: str,
        mask: str,
        application: str,
    ) -> None:
        self.kvs = [STORAGE[kv](max_length) for _ in range(config.num_hidden_layers)]
        self.parts = rope_parts(rope, config, max_length, dtype, device)
        self.masks = POLICIES[mask](application, dtype, device)
        self.begin = self.masks.begin
        self.get = self.masks.get

    def rows(self, position: int, length: int) -> tuple[Tensor, ...]:
        """As rope.Tables.rows."""
        return tuple(part.narrow(0, position, length) for part in self.parts)
