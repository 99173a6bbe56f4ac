"""Causal self-attention with grouped queries; RoPE, masks and KV are plugged in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import candle
from candle import functional

from ...config import LlamaConfig
from .cache import KV
from .heads import heads_first, tokens_first
from .masks import Masks
from .rope import Rotary


class Attention:
    """x [B·T, E] → [B·T, E]."""

    def __init__(
        self, config: LlamaConfig, weights: Mapping[str, Any], prefix: str, rotary: Rotary, masks: Masks, kv: KV
    ) -> None:
        self.q, self.k, self.v, self.o = (weights[f"{prefix}{part}_proj.weight"] for part in "qkvo")
        self.heads, self.groups, self.size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.root = float(config.head_dim) ** 0.5
        self.rotary, self.masks, self.kv = rotary, masks, kv

    def __call__(self, x: Any, batch: int, position: int) -> Any:
        length = x.shape[0] // batch
        q = x.matmul(self.q).reshape((batch, length, self.heads, self.size))
        k = x.matmul(self.k).reshape((batch, length, self.groups, self.size))
        v = x.matmul(self.v).reshape((batch, length, self.groups, self.size))
        q, k = self.rotary(q, k, position)
        k, v = self.kv.append(heads_first(k), heads_first(v))  # [B, G, S, D]
        end = k.shape[2]
        if self.groups != self.heads:
            many = self.heads // self.groups
            k, v = (candle.cat([part] * many, 2).reshape((batch, self.heads, end, self.size)) for part in (k, v))
        scores = heads_first(q).matmul(k.transpose(2, 3)) / self.root  # [B, H, T, S]
        mask = self.masks.get(length, end)
        if mask is not None:
            scores = scores.broadcast_add(mask.unsqueeze(0).unsqueeze(0).broadcast_as(scores.shape))
        y = tokens_first(functional.softmax(scores, 3).matmul(v))
        return y.reshape((batch * length, self.heads * self.size)).matmul(self.o.t())
