"""`fast` compiled, with each matrix by rows, [out, in], so that the compiler writes the products of one token itself.

One row of activations times a matrix reads every weight once and computes two operations with it: memory decides.
Written as a sum over products, `torch.compile` makes a loop of it that reads memory in order, which MKL's kernels for
matrices do not keep up with. Several tokens at a time are left to MKL and to SDPA.

The compiler writes what leads to a product into its loop as well, and would compute norm and residual anew for each
row. `stored` keeps it from that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .compiling import compiled
from .config import LlamaConfig
from .modular.rope import angle_tables


class Layer(NamedTuple):
    """Weights of one layer; matrices are [out, in]."""

    attention_norm: Tensor  # [E]
    qkv: Tensor  # [(H + 2G)·D, E]
    o: Tensor  # [E, H·D]
    mlp_norm: Tensor  # [E]
    gate_up: Tensor  # [2F, E]
    down: Tensor  # [E, F]


class Parts(NamedTuple):
    """Everything but the layers. cos, sin [max, 1, D]: half-split, rotate_half's minus sign folded into the sine."""

    embedding: Tensor  # [V, E]
    norm: Tensor  # [E]
    head: Tensor  # [V, E]
    cos: Tensor
    sin: Tensor


def stored(x: Tensor) -> Tensor:
    """The same contiguous tensor, which the compiler has in memory from here on: a view by strides needs storage."""
    return x.as_strided(x.shape, x.stride())


def product(x: Tensor, matrix: Tensor) -> Tensor:
    """[N, in] times the rows of [out, in] → [N, out]."""
    return (matrix * stored(x)).sum(-1)[None] if x.shape[0] == 1 else x @ matrix.t()


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One query [1, H, 1, D] over keys and values [1, G, S, D] → [1, H, 1, D], written out for the compiler as well."""
    q = q.unflatten(1, (k.shape[1], -1))  # [1, G, H/G, 1, D]
    scores = (k[:, :, None] * q).sum(-1, keepdim=True) * q.shape[-1] ** -0.5
    return (scores.softmax(-2) * v[:, :, None]).sum(-2, keepdim=True).flatten(1, 2)


def forward(
    config: LlamaConfig,
    parts: Parts,
    layers: tuple[Layer, ...],
    kvs: tuple[tuple[Tensor, Tensor], ...],
    tokens: Tensor,
    position: int,
    causal: bool,
) -> Tensor:
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one; K and V go into `kvs` [B, G, max, D].
    `causal`: several tokens from position 0 on, so that SDPA needs no mask."""
    batch, length = tokens.shape
    end = position + length
    heads, kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    x = F.embedding(tokens, parts.embedding).flatten(0, 1)  # [B·T, E]
    shape = (x.shape[-1],)
    cos, sin = parts.cos[position:end], parts.sin[position:end]  # [T, 1, D]
    mask = None
    if length > 1 and not causal:
        mask = torch.ones(length, end, dtype=torch.bool, device=x.device).tril_(position)  # True = seen
    for i, (layer, (k_all, v_all)) in enumerate(zip(layers, kvs, strict=True)):
        y = product(F.rms_norm(x, shape, layer.attention_norm, config.rms_norm_eps), layer.qkv)
        y = y.view(batch, length, heads + 2 * kv_heads, head_dim)
        qk = y[:, :, : heads + kv_heads]
        qk = stored(qk * cos + qk.roll(head_dim // 2, -1) * sin)  # Q and K turned together
        k_all[:, :, position:end] = qk[:, :, heads:].transpose(1, 2)
        v_all[:, :, position:end] = y[:, :, heads + kv_heads :].transpose(1, 2)
        q = qk[:, :, :heads].transpose(1, 2)  # [B, H, T, D]
        if i == len(layers) - 1 and length > 1:  # from here on only the last position is asked for
            x, q, mask, causal = x[length - 1 :: length], q[:, :, -1:], None, False
        k, v = k_all[:, :, :end], v_all[:, :, :end]
        if tokens.numel() == 1:
            y = attended(q, k, v)
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=heads != kv_heads)
        x = x + product(y.transpose(1, 2).reshape(x.shape[0], heads * head_dim), layer.o)
        gate, up = product(F.rms_norm(x, shape, layer.mlp_norm, config.rms_norm_eps), layer.gate_up).chunk(2, dim=-1)
        x = x + product(F.silu(gate) * up, layer.down)
    return product(F.rms_norm(x, shape, parts.norm, config.rms_norm_eps), parts.head)


class FastRowsLlama:
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one."""

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Tensor], max_length: int) -> None:
        self.config = config
        self.max_length = max_length
        self._forward = compiled(forward, (config, max_length))
        self.layers = tuple(_layer(weights, i) for i in range(config.num_hidden_layers))
        embedding = weights["model.embed_tokens.weight"]
        cos, sin = (
            torch.cat((table, table), dim=-1)[:, None].to(embedding.device, embedding.dtype)
            for table in angle_tables(config, max_length, torch.float32)
        )
        sin[..., : config.head_dim // 2].neg_()
        self.parts = Parts(embedding, weights["model.norm.weight"], weights["lm_head.weight"], cos, sin)
        self.kvs: tuple[tuple[Tensor, Tensor], ...] = ()

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        c = self.config
        batch, length = tokens.shape
        if not self.kvs or self.kvs[0][0].shape[0] != batch:
            size = (batch, c.num_key_value_heads, self.max_length, c.head_dim)
            new = self.parts.embedding.new_empty
            self.kvs = tuple((new(size), new(size)) for _ in self.layers)
        return self._forward(c, self.parts, self.layers, self.kvs, tokens, position, position == 0 and length > 1)

    def reset(self) -> None:
        """Nothing to forget: positions beyond the next call's are never read."""


def _layer(weights: Mapping[str, Tensor], i: int) -> Layer:
    def matrix(*names: str) -> Tensor:
        return torch.cat([weights[f"model.layers.{i}.{name}_proj.weight"] for name in names])

    return Layer(
        weights[f"model.layers.{i}.input_layernorm.weight"],
        matrix("self_attn.q", "self_attn.k", "self_attn.v"),
        weights[f"model.layers.{i}.self_attn.o_proj.weight"],
        weights[f"model.layers.{i}.post_attention_layernorm.weight"],
        matrix("mlp.gate", "mlp.up"),
        weights[f"model.layers.{i}.mlp.down_proj.weight"],
    )


def build(config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int) -> FastRowsLlama:
    """A model over `weights` (Hugging Face names); Q, K, V and gate, up are concatenated once, here."""
    return FastRowsLlama(config, weights, max_length)
