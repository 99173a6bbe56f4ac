"""gpt-fast's recipe, after pytorch-labs/gpt-fast `model.py`: what people who use torch.compile for a Llama write.

Fused QKV, interleaved RoPE, a static KV cache that is written by index and attended in full under a row of the causal
mask, positions in a tensor, so that one compiled graph serves every step of decode. Only the last position's logits are
computed (gpt-fast computes all of a prompt's). The cache is only as long as the workload needs; without a compiler,
attending all of it is still a cost that `fast` does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .compiling import compiled as through_compiler
from .config import LlamaConfig
from .modular.linear import interleave_rows
from .modular.rope import angle_tables


class Layer(NamedTuple):
    """Weights of one layer, matrices [out, in]; the rows of Q and K are permuted for interleaved RoPE."""

    attention_norm: Tensor
    wqkv: Tensor
    wo: Tensor
    ffn_norm: Tensor
    w1: Tensor
    w3: Tensor
    w2: Tensor


class Parts(NamedTuple):
    """Everything but the layers. frequencies [max, D/2, 2]: cosine and sine; mask [max, max]: True = seen."""

    embedding: Tensor
    norm: Tensor
    output: Tensor
    frequencies: Tensor
    mask: Tensor


def _rotate(x: Tensor, frequencies: Tensor) -> Tensor:
    """RoPE on pairs (2i, 2i + 1) of x [B, T, H, D] with frequencies [T, D/2, 2]."""
    pairs = x.float().reshape(*x.shape[:-1], -1, 2) if x.dtype != torch.float64 else x.reshape(*x.shape[:-1], -1, 2)
    cos, sin = frequencies[:, None, :, 0], frequencies[:, None, :, 1]
    turned = torch.stack((pairs[..., 0] * cos - pairs[..., 1] * sin, pairs[..., 1] * cos + pairs[..., 0] * sin), dim=-1)
    return turned.flatten(3).type_as(x)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x if x.dtype == torch.float64 else x.float()
    return (wide * torch.rsqrt(torch.mean(wide * wide, dim=-1, keepdim=True) + eps)).type_as(x) * weight


def forward(
    config: LlamaConfig,
    parts: Parts,
    layers: tuple[Layer, ...],
    kvs: tuple[tuple[Tensor, Tensor], ...],
    tokens: Tensor,
    input_pos: Tensor,
) -> Tensor:
    """Tokens [B, T] at positions `input_pos` [T] → logits [B, V] of the last; K and V go into `kvs` [B, G, max, D]."""
    batch, length = tokens.shape  # phase: other
    heads, kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    mask = parts.mask[None, None, input_pos]  # phase: mask_create
    frequencies = parts.frequencies[input_pos]  # phase: rope
    x = F.embedding(tokens, parts.embedding)  # phase: embedding
    for layer, (k_cache, v_cache) in zip(layers, kvs, strict=True):
        y = F.linear(_norm(x, layer.attention_norm, config.rms_norm_eps), layer.wqkv)  # phase: qkv; _norm: norm
        # phase: qkv
        q, k, v = y.split([heads * head_dim, kv_heads * head_dim, kv_heads * head_dim], dim=-1)
        # phase: rope
        q = _rotate(q.view(batch, length, heads, head_dim), frequencies).transpose(1, 2)
        k = _rotate(k.view(batch, length, kv_heads, head_dim), frequencies).transpose(1, 2)
        # phase: cache
        v = v.view(batch, length, kv_heads, head_dim).transpose(1, 2)
        k_cache[:, :, input_pos] = k
        v_cache[:, :, input_pos] = v
        # phase: attention_fused
        y = F.scaled_dot_product_attention(q, k_cache, v_cache, attn_mask=mask, enable_gqa=heads != kv_heads)
        # phase: other; linear: o_proj
        x = x + F.linear(y.transpose(1, 2).reshape(batch, length, heads * head_dim), layer.wo)
        y = _norm(x, layer.ffn_norm, config.rms_norm_eps)  # phase: norm
        # phase: other; linear: mlp
        x = x + F.linear(F.silu(F.linear(y, layer.w1)) * F.linear(y, layer.w3), layer.w2)
    # phase: other; linear: lm_head; _norm: final_norm
    return F.linear(_norm(x[:, -1], parts.norm, config.rms_norm_eps), parts.output)


class GptFast:
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one."""

    def __init__(
        self, config: LlamaConfig, weights: Mapping[str, Tensor], max_length: int, forward: Callable[..., Tensor]
    ) -> None:
        self.config = config
        self.max_length = max_length
        self._forward = forward
        self.layers = tuple(_layer(config, weights, i) for i in range(config.num_hidden_layers))
        embedding = weights["model.embed_tokens.weight"]
        frequencies = torch.stack(angle_tables(config, max_length, embedding.dtype, embedding.device), dim=-1)
        mask = torch.ones(max_length, max_length, dtype=torch.bool, device=embedding.device).tril_()
        output = weights["lm_head.weight"]
        self.parts = Parts(embedding, weights["model.norm.weight"], output, frequencies, mask)
        self.kvs: tuple[tuple[Tensor, Tensor], ...] = ()

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        c = self.config
        batch, length = tokens.shape
        if not self.kvs or self.kvs[0][0].shape[0] != batch:
            # phase: cache
            size = (batch, c.num_key_value_heads, self.max_length, c.head_dim)
            new = self.parts.embedding.new_zeros  # what is masked is read all the same, and must not be NaN
            self.kvs = tuple((new(size), new(size)) for _ in self.layers)
        input_pos = torch.arange(position, position + length, device=tokens.device)  # phase: cache
        # phase: enter
        return self._forward(c, self.parts, self.layers, self.kvs, tokens, input_pos)

    def reset(self) -> None:
        """Nothing to forget: positions beyond the next call's are masked."""


def _layer(config: LlamaConfig, weights: Mapping[str, Tensor], i: int) -> Layer:
    def matrix(name: str) -> Tensor:
        return weights[f"model.layers.{i}.{name}_proj.weight"]

    q, k = (interleave_rows(matrix(f"self_attn.{part}"), config.head_dim) for part in "qk")
    return Layer(
        weights[f"model.layers.{i}.input_layernorm.weight"],
        torch.cat([q, k, matrix("self_attn.v")]),
        matrix("self_attn.o"),
        weights[f"model.layers.{i}.post_attention_layernorm.weight"],
        matrix("mlp.gate"),
        matrix("mlp.up"),
        matrix("mlp.down"),
    )


def build(config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int, compiled: bool = False) -> GptFast:
    """A model over `weights` (Hugging Face names); Q, K, V are concatenated once, here."""
    run = through_compiler(forward, (config, max_length)) if compiled else forward
    return GptFast(config, weights, max_length, run)
