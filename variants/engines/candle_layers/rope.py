"""Rotary position embedding, behind a boundary of its own."""

from __future__ import annotations

from typing import Any, Protocol

import candle

from ...config import LlamaConfig
from ...modular.rope import inverse_frequencies
from ..candle_io import angles
from .heads import heads_first, tokens_first


def rotate_half(x: Any, cos: Any, sin: Any) -> Any:
    """x [B, H, T, D] turned in pairs (i, i + D/2); cos and sin [T, D/2]."""
    half = x.shape[-1] // 2
    first, second = x.narrow(-1, 0, half), x.narrow(-1, half, half)
    turned = first.broadcast_mul(cos) - second.broadcast_mul(sin)
    return candle.cat([turned, second.broadcast_mul(cos) + first.broadcast_mul(sin)], -1)


class Tables(Protocol):
    """Whoever has the angles: RopeTables, InlineAngles, or the Cache."""

    def rows(self, position: int, length: int) -> tuple[Any, Any]:
        """cos and sin of positions [position, position + length), [T, D/2] each."""


class RopeTables:
    """Tables that were made once."""

    def __init__(self, config: LlamaConfig, max_length: int, dtype: Any) -> None:
        self.cos, self.sin = angles(config, max_length, dtype)

    def rows(self, position: int, length: int) -> tuple[Any, Any]:
        return self.cos.narrow(0, position, length), self.sin.narrow(0, position, length)


class InlineAngles:
    """Computed anew in each layer and call (TEAM-008's last state), but for the frequencies, which theirs computed anew
    as well: D/2 powers in a compiled loop, for which Python would take longer."""

    def __init__(self, config: LlamaConfig, max_length: int, dtype: Any) -> None:
        self.positions = candle.Tensor([float(at) for at in range(max_length)]).reshape((max_length, 1))
        self.frequencies = candle.Tensor(inverse_frequencies(config).tolist()).reshape((1, config.head_dim // 2))
        self.dtype = dtype

    def rows(self, position: int, length: int) -> tuple[Any, Any]:
        angle = self.positions.narrow(0, position, length).matmul(self.frequencies)  # [T, D/2]
        return angle.cos().to_dtype(self.dtype), angle.sin().to_dtype(self.dtype)


class Rotary:
    """Q [B, T, H, D] and K [B, T, G, D] → the same, turned in [B, H, T, D]: a copy of each there and back."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def __call__(self, q: Any, k: Any, position: int) -> tuple[Any, Any]:
        q, k = heads_first(q), heads_first(k)
        cos, sin = self.tables.rows(position, q.shape[2])
        return tokens_first(rotate_half(q, cos, sin)), tokens_first(rotate_half(k, cos, sin))
