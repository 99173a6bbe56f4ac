"""Heads before tokens, and back: a copy, but of one token none, as in Candle 0.9 (0.4 would copy it)."""

from __future__ import annotations

from typing import Any


def heads_first(x: Any) -> Any:
    """[B, T, H, D] as [B, H, T, D]."""
    batch, length, heads, size = x.shape
    return x.reshape((batch, heads, 1, size)) if length == 1 else x.transpose(1, 2).contiguous()


def tokens_first(x: Any) -> Any:
    """[B, H, T, D] as [B, T, H, D]."""
    batch, heads, length, size = x.shape
    return x.reshape((batch, 1, heads, size)) if length == 1 else x.transpose(1, 2).contiguous()
