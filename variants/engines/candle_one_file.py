"""TEAM-005's rewrite on Candle's own kernels: one file, one Cache; it imports nothing of `candle_layers`.

As it stands, the counterpart of the many files: the same operations in the same order. `integrated`: RoPE within
attention, heads first once and no copies there and back. `boolean`: masks of bytes, filled in by `where_cond`, as the
plan has them. Its preallocated KV cache cannot be written in place from Python: keys and values grow by `cat` here as
in the worker. Shapes: B batch, T new tokens, S tokens so far, H query heads, G key/value heads, D head size, E width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import candle
from candle import functional
from torch import Tensor

from ..config import LlamaConfig
from .candle_io import Reader, angles, load, type_of


def heads_first(x: Any) -> Any:
    """[B, T, H, D] as [B, H, T, D]: a copy, but of one token none, as in Candle 0.9."""
    batch, length, heads, size = x.shape
    return x.reshape((batch, heads, 1, size)) if length == 1 else x.transpose(1, 2).contiguous()


def tokens_first(x: Any) -> Any:
    """[B, H, T, D] as [B, T, H, D], likewise."""
    batch, heads, length, size = x.shape
    return x.reshape((batch, 1, heads, size)) if length == 1 else x.transpose(1, 2).contiguous()


def rotate_half(x: Any, cos: Any, sin: Any) -> Any:
    """x [B, H, T, D] turned in pairs (i, i + D/2); cos and sin [T, D/2]."""
    half = x.shape[-1] // 2
    first, second = x.narrow(-1, 0, half), x.narrow(-1, half, half)
    turned = first.broadcast_mul(cos) - second.broadcast_mul(sin)
    return candle.cat([turned, second.broadcast_mul(cos) + first.broadcast_mul(sin)], -1)


class Cache:
    """KV of all layers, RoPE's tables, and masks by (T, S)."""

    def __init__(self, config: LlamaConfig, max_length: int, dtype: Any, boolean: bool) -> None:
        self.cos, self.sin = angles(config, max_length, dtype)
        self.boolean = boolean
        self.lowest = candle.Tensor([float("-inf")]).to_dtype(dtype)
        self.dtype = dtype
        self.masks: dict[tuple[int, int], Any] = {}
        self.kvs: list[Any] = [None] * config.num_hidden_layers

    def rows(self, position: int, length: int) -> tuple[Any, Any]:
        """cos and sin, [T, D/2] each."""
        return self.cos.narrow(0, position, length), self.sin.narrow(0, position, length)

    def append(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """k and v [B, G, T, D] → all so far, [B, G, S, D]."""
        if (past := self.kvs[layer]) is not None:
            k, v = candle.cat([past[0], k], 2), candle.cat([past[1], v], 2)
        self.kvs[layer] = k, v
        return k, v

    def mask(self, length: int, kv_length: int) -> Any:
        """[T, S]: bytes, 1 where the key lies after the query, or -inf there and else 0; None at decode."""
        if length == 1:
            return None
        key = (length, kv_length)
        if key not in self.masks:
            rows = candle.Tensor(list(range(kv_length - length, kv_length))).reshape((length, 1))
            columns = candle.Tensor(list(range(kv_length))).reshape((1, kv_length))
            later = columns.broadcast_as(key) > rows.broadcast_as(key)
            nothing = candle.zeros(key, dtype=self.dtype)
            self.masks[key] = later if self.boolean else later.where_cond(self.lowest.broadcast_as(key), nothing)
        return self.masks[key]


class Attention:
    """x [B·T, E] → [B·T, E]."""

    def __init__(
        self, config: LlamaConfig, weights: Mapping[str, Any], layer: int, cache: Cache, integrated: bool
    ) -> None:
        prefix = f"model.layers.{layer}.self_attn."
        self.q, self.k, self.v, self.o = (weights[f"{prefix}{part}_proj.weight"] for part in "qkvo")
        self.heads, self.groups, self.size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.root = float(config.head_dim) ** 0.5
        self.layer, self.cache, self.integrated = layer, cache, integrated

    def rotary(self, q: Any, k: Any, position: int) -> tuple[Any, Any]:
        """q [B, T, H, D] and k [B, T, G, D], there and back."""
        q, k = heads_first(q), heads_first(k)
        cos, sin = self.cache.rows(position, q.shape[2])
        return tokens_first(rotate_half(q, cos, sin)), tokens_first(rotate_half(k, cos, sin))

    def __call__(self, x: Any, batch: int, position: int) -> Any:
        length = x.shape[0] // batch
        q = x.matmul(self.q).reshape((batch, length, self.heads, self.size))
        k = x.matmul(self.k).reshape((batch, length, self.groups, self.size))
        v = x.matmul(self.v).reshape((batch, length, self.groups, self.size))
        if self.integrated:
            q, k, v = heads_first(q), heads_first(k), heads_first(v)
            cos, sin = self.cache.rows(position, length)
            q, k = rotate_half(q, cos, sin), rotate_half(k, cos, sin)
            k, v = self.cache.append(self.layer, k, v)  # [B, G, S, D]
        else:
            q, k = self.rotary(q, k, position)
            k, v = self.cache.append(self.layer, heads_first(k), heads_first(v))
        end = k.shape[2]
        if self.groups != self.heads:
            many = self.heads // self.groups
            k, v = (candle.cat([part] * many, 2).reshape((batch, self.heads, end, self.size)) for part in (k, v))
        if not self.integrated:
            q = heads_first(q)
        scores = q.matmul(k.transpose(2, 3)) / self.root  # [B, H, T, S]
        mask = self.cache.mask(length, end)
        if mask is not None:
            mask = mask.unsqueeze(0).unsqueeze(0).broadcast_as(scores.shape)
            if self.cache.boolean:
                scores = mask.where_cond(self.cache.lowest.broadcast_as(scores.shape), scores)
            else:
                scores = scores.broadcast_add(mask)
        y = tokens_first(functional.softmax(scores, 3).matmul(v))
        return y.reshape((batch * length, self.heads * self.size)).matmul(self.o.t())


class SwiGLU:
    """down(silu(gate(x)) · up(x)), x [B·T, E]."""

    def __init__(self, weights: Mapping[str, Any], layer: int) -> None:
        parts = (f"model.layers.{layer}.mlp.{part}_proj.weight" for part in ("gate", "up", "down"))
        self.gate, self.up, self.down = (weights[part] for part in parts)

    def __call__(self, x: Any) -> Any:
        return (functional.silu(x.matmul(self.gate.t())) * x.matmul(self.up.t())).matmul(self.down.t())


class RMSNorm:
    """x / rms(x) · weight, x [B·T, E]."""

    def __init__(self, weight: Any, eps: float) -> None:
        self.weight, self.eps, self.width = weight, eps, float(weight.shape[0])

    def __call__(self, x: Any) -> Any:
        squares = x.sqr().sum_keepdim(1) / self.width
        return x.broadcast_div((squares + self.eps).sqrt()).broadcast_mul(self.weight)


class Block:
    """One decoder layer, pre-norm, two residual branches."""

    def __init__(
        self, config: LlamaConfig, weights: Mapping[str, Any], layer: int, cache: Cache, integrated: bool
    ) -> None:
        names = (f"model.layers.{layer}.{place}_layernorm.weight" for place in ("input", "post_attention"))
        self.attention_norm, self.mlp_norm = (RMSNorm(weights[name], config.rms_norm_eps) for name in names)
        self.attention = Attention(config, weights, layer, cache, integrated)
        self.mlp = SwiGLU(weights, layer)

    def __call__(self, x: Any, batch: int, position: int) -> Any:
        x = x + self.attention(self.attention_norm(x), batch, position)
        return x + self.mlp(self.mlp_norm(x))


class Llama:
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one."""

    def __init__(
        self,
        config: LlamaConfig,
        weights: Mapping[str, Tensor],
        *,
        max_length: int,
        integrated: bool = False,
        boolean: bool = False,
    ) -> None:
        loaded = load(config, weights, worker=True)
        self.cache = Cache(config, max_length, type_of(weights), boolean)
        layers = range(config.num_hidden_layers)
        self.blocks = [Block(config, loaded, layer, self.cache, integrated) for layer in layers]
        self.embedding, self.head = loaded["model.embed_tokens.weight"], loaded["lm_head.weight"]
        self.norm = RMSNorm(loaded["model.norm.weight"], config.rms_norm_eps)
        self.read = Reader()

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        batch, length = tokens.shape
        x = self.embedding.index_select(candle.Tensor(tokens.flatten().tolist()), 0)  # [B·T, E]
        for block in self.blocks:
            x = block(x, batch, position)
        width = x.shape[1]
        x = x.reshape((batch, length, width)).narrow(1, length - 1, 1).contiguous().reshape((batch, width))
        return self.read(self.norm(x).matmul(self.head.t()))

    def reset(self) -> None:
        """Forget the sequence; masks and tables are kept."""
        self.cache.kvs = [None] * len(self.blocks)


build = Llama
