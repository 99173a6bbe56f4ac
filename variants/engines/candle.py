"""Our Llama on Candle's own kernels, by the Python bindings that the `candle-nn` wheel brings.

Written as candle-transformers' models/llama.rs: one object, a KV cache that grows by `cat`, masks by (T, kv) in one
dict and filled in, half-split RoPE, logits of the last position. Two things are not as in Rust, because the bindings
do not expose them: RoPE and RMSNorm are composed of several operations where Rust calls one fused kernel, and each
operation is called from Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import candle
from candle import functional
from torch import Tensor

from ..config import LlamaConfig
from .candle_io import Reader, angles, load, type_of
from .candle_layers.heads import heads_first, tokens_first


def rotate_half(x: Any, cos: Any, sin: Any) -> Any:
    """x [B, H, T, D] turned in pairs (i, i + D/2); cos and sin [T, D/2]."""
    half = x.shape[-1] // 2
    first, second = x.narrow(-1, 0, half), x.narrow(-1, half, half)
    turned = first.broadcast_mul(cos) - second.broadcast_mul(sin)
    return candle.cat([turned, second.broadcast_mul(cos) + first.broadcast_mul(sin)], -1)


def causal_mask(length: int, kv_length: int) -> Any:
    """u8 [T, kv]: 1 where the key must not be seen, by comparing two ranges."""
    rows = candle.Tensor(list(range(kv_length - length, kv_length))).reshape((length, 1))
    columns = candle.Tensor(list(range(kv_length))).reshape((1, kv_length))
    shape = (length, kv_length)
    return columns.broadcast_as(shape) > rows.broadcast_as(shape)


class CandleLlama:
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one, on Candle's CPU kernels. `fresh_masks`:
    made by each layer at each call, not kept by (T, kv). Raises EngineError where the threads are not those of the
    run."""

    def __init__(
        self, config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int, fresh_masks: bool = False
    ) -> None:
        self.weights = load(config, weights, worker=False)
        self.config = config
        self.fresh_masks = fresh_masks
        self.dtype = type_of(weights)
        self.read = Reader()
        self.cos, self.sin = angles(config, max_length, self.dtype)
        self.lowest = candle.Tensor([float("-inf")]).to_dtype(self.dtype)
        self.masks: dict[tuple[int, int], Any] = {}
        self.kvs: list[tuple[Any, Any]] = []

    def _linear(self, x: Any, name: str) -> Any:
        return x.matmul(self.weights[name].t())

    def _norm(self, x: Any, name: str) -> Any:
        squares = x.sqr().sum_keepdim(1) / float(self.config.hidden_size)
        return x.broadcast_div((squares + self.config.rms_norm_eps).sqrt()).broadcast_mul(self.weights[name])

    def _mask(self, length: int, kv_length: int) -> Any:
        key = (length, kv_length)
        if self.fresh_masks:
            return causal_mask(*key)
        if key not in self.masks:
            self.masks[key] = causal_mask(*key)
        return self.masks[key]

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        """Logits [B, V], float32 (float64 where the weights are)."""
        c = self.config
        batch, length = tokens.shape
        heads, groups, size = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        ids = candle.Tensor(tokens.flatten().tolist())
        x = self.weights["model.embed_tokens.weight"].index_select(ids, 0)  # [B·T, E]: matmul takes no other rank
        cos, sin = self.cos.narrow(0, position, length), self.sin.narrow(0, position, length)
        past = self.kvs if position else []
        self.kvs = []
        for layer in range(c.num_hidden_layers):
            p = f"model.layers.{layer}."
            y = self._norm(x, f"{p}input_layernorm.weight")
            q, k, v = (
                heads_first(self._linear(y, f"{p}self_attn.{part}_proj.weight").reshape((batch, length, count, size)))
                for part, count in (("q", heads), ("k", groups), ("v", groups))
            )
            q, k = rotate_half(q, cos, sin), rotate_half(k, cos, sin)  # [B, H, T, D]
            if past:
                k, v = candle.cat([past[layer][0], k], 2), candle.cat([past[layer][1], v], 2)
            self.kvs.append((k, v))
            end = k.shape[2]
            if groups != heads:
                many = heads // groups
                k, v = (candle.cat([part] * many, 2).reshape((batch, heads, end, size)) for part in (k, v))
            scores = q.matmul(k.transpose(2, 3)) / float(size) ** 0.5  # [B, H, T, S]
            if length > 1:
                mask = self._mask(length, end).broadcast_as(scores.shape)
                scores = mask.where_cond(self.lowest.broadcast_as(scores.shape), scores)
            y = tokens_first(functional.softmax(scores, 3).matmul(v)).reshape((batch * length, heads * size))
            x = x + self._linear(y, f"{p}self_attn.o_proj.weight")
            y = self._norm(x, f"{p}post_attention_layernorm.weight")
            gate = functional.silu(self._linear(y, f"{p}mlp.gate_proj.weight"))
            x = x + self._linear(gate * self._linear(y, f"{p}mlp.up_proj.weight"), f"{p}mlp.down_proj.weight")
        x = x.reshape((batch, length, c.hidden_size)).narrow(1, length - 1, 1).contiguous()
        x = self._norm(x.reshape((batch, c.hidden_size)), "model.norm.weight")
        return self.read(self._linear(x, "lm_head.weight"))

    def reset(self) -> None:
        """Forget the sequence; masks and tables are kept."""
        self.kvs = []


build = CandleLlama
