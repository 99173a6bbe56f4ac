"""Keys and values of a layer, and the one Cache that owns all that is kept."""

from __future__ import annotations

from typing import Any

import candle

from ...config import LlamaConfig
from .masks import KeptMasks
from .rope import RopeTables


class KV:
    """Grown by `cat`: the bindings cannot write into a tensor."""

    def __init__(self) -> None:
        self.k: Any = None
        self.v: Any = None

    def append(self, k: Any, v: Any) -> tuple[Any, Any]:
        """k and v [B, G, T, D] → all so far, [B, G, S, D]."""
        self.k = k if self.k is None else candle.cat([self.k, k], 2)
        self.v = v if self.v is None else candle.cat([self.v, v], 2)
        return self.k, self.v

    def reset(self) -> None:
        self.k = self.v = None


class Cache(RopeTables, KeptMasks):
    """Everything under one owner, as Candle's `Cache`: KV of all layers, RoPE's tables, masks."""

    def __init__(self, config: LlamaConfig, max_length: int, dtype: Any) -> None:
        RopeTables.__init__(self, config, max_length, dtype)
        KeptMasks.__init__(self, dtype)
        self.kvs = [KV() for _ in range(config.num_hidden_layers)]
