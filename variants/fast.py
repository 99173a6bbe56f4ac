"""Our best Llama on the same weights: fused projections, one SDPA call, KV in place, the last position only.

gpt-fast's recipe (fused QKV, SDPA, static KV) with litgpt's correction for eager use: attention sees the used part of
the buffer, not its full length. At decode and from position 0 no mask is built (SDPA's `is_causal`); a later chunk
gets a mask with its offset, because `is_causal` aligns to the upper left.

Weights are kept transposed, [in, out]: with one row of activations MKL reads the LM head [32000, 288] faster that way,
and it is slower on no shape of the workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .compiling import compiled as through_compiler
from .config import LlamaConfig
from .modular.rope import angle_tables


class Layer(NamedTuple):
    """Weights of one layer; matrices are [in, out]."""

    attention_norm: Tensor  # [E]
    qkv: Tensor  # [E, (H + 2G)·D]
    o: Tensor  # [H·D, E]
    mlp_norm: Tensor  # [E]
    gate_up: Tensor  # [E, 2F]
    down: Tensor  # [F, E]


class Parts(NamedTuple):
    """Everything but the layers. cos, sin [max, 1, D]: half-split, rotate_half's minus sign folded into the sine."""

    embedding: Tensor  # [V, E]
    norm: Tensor  # [E]
    head: Tensor  # [E, V]
    cos: Tensor
    sin: Tensor


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
    `causal`: several tokens from position 0 on, so that SDPA needs no mask. (An argument, because a compiler keeps a
    comparison of positions symbolic, and SDPA wants to know.)"""
    batch, length = tokens.shape
    end = position + length  # phase: other
    heads, kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    x = F.embedding(tokens, parts.embedding).flatten(0, 1)  # [B·T, E]  # phase: embedding
    shape = (x.shape[-1],)  # phase: other
    cos, sin = parts.cos[position:end], parts.sin[position:end]  # [T, 1, D]  # phase: rope
    # phase: mask_create
    mask = None
    if length > 1 and not causal:
        mask = torch.ones(length, end, dtype=torch.bool, device=x.device).tril_(position)  # True = seen
    for i, (layer, (k_all, v_all)) in enumerate(zip(layers, kvs, strict=True)):
        y = F.rms_norm(x, shape, layer.attention_norm, config.rms_norm_eps) @ layer.qkv  # phase: qkv; rms_norm: norm
        y = y.view(batch, length, heads + 2 * kv_heads, head_dim)  # phase: qkv
        # phase: rope
        qk = y[:, :, : heads + kv_heads]
        qk = qk * cos + qk.roll(head_dim // 2, -1) * sin  # Q and K turned together
        # phase: cache
        k_all[:, :, position:end] = qk[:, :, heads:].transpose(1, 2)
        v_all[:, :, position:end] = y[:, :, heads + kv_heads :].transpose(1, 2)
        # phase: attention_fused
        q = qk[:, :, :heads].transpose(1, 2)  # [B, H, T, D]
        if i == len(layers) - 1 and length > 1:  # from here on only the last position is asked for
            x, q, mask, causal = x[length - 1 :: length], q[:, :, -1:], None, False
        y = F.scaled_dot_product_attention(
            q, k_all[:, :, :end], v_all[:, :, :end], mask, is_causal=causal, enable_gqa=heads != kv_heads
        )
        # phase: o_proj
        x = torch.addmm(x, y.transpose(1, 2).reshape(x.shape[0], heads * head_dim), layer.o)
        # phase: mlp; rms_norm: norm
        gate, up = (F.rms_norm(x, shape, layer.mlp_norm, config.rms_norm_eps) @ layer.gate_up).chunk(2, dim=-1)
        x = torch.addmm(x, F.silu(gate) * up, layer.down)  # phase: mlp
    # phase: other; @: lm_head; rms_norm: final_norm
    return F.rms_norm(x, shape, parts.norm, config.rms_norm_eps) @ parts.head


class FastLlama:
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one."""

    def __init__(
        self, config: LlamaConfig, weights: Mapping[str, Tensor], max_length: int, forward: Callable[..., Tensor]
    ) -> None:
        self.config = config
        self.max_length = max_length
        self._forward = forward
        self.layers = tuple(_layer(weights, i) for i in range(config.num_hidden_layers))
        embedding = weights["model.embed_tokens.weight"]
        cos, sin = (
            torch.cat((table, table), dim=-1)[:, None].to(embedding.device, embedding.dtype)
            for table in angle_tables(config, max_length, torch.float32)
        )
        sin[..., : config.head_dim // 2].neg_()
        head = weights["lm_head.weight"].t().contiguous()
        self.parts = Parts(embedding, weights["model.norm.weight"], head, cos, sin)
        self.kvs: tuple[tuple[Tensor, Tensor], ...] = ()

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        c = self.config
        batch, length = tokens.shape
        if not self.kvs or self.kvs[0][0].shape[0] != batch:
            # phase: cache
            size = (batch, c.num_key_value_heads, self.max_length, c.head_dim)
            new = self.parts.embedding.new_empty
            self.kvs = tuple((new(size), new(size)) for _ in self.layers)
        # phase: enter
        return self._forward(c, self.parts, self.layers, self.kvs, tokens, position, position == 0 and length > 1)

    def reset(self) -> None:
        """Nothing to forget: positions beyond the next call's are never read."""


def _layer(weights: Mapping[str, Tensor], i: int) -> Layer:
    def matrix(*names: str) -> Tensor:
        # Part by part: transposing into a part of a wider matrix reads and writes across the rows, and the allocator
        # would keep a copy of the whole.
        parts = [weights[f"model.layers.{i}.{name}_proj.weight"] for name in names]
        packed = parts[0].new_empty(parts[0].shape[1], sum(len(part) for part in parts))
        for part, columns in zip(parts, packed.split([len(part) for part in parts], dim=1), strict=True):
            columns.copy_(part.t().contiguous())
        return packed

    return Layer(
        weights[f"model.layers.{i}.input_layernorm.weight"],
        matrix("self_attn.q", "self_attn.k", "self_attn.v"),
        matrix("self_attn.o"),
        weights[f"model.layers.{i}.post_attention_layernorm.weight"],
        matrix("mlp.gate", "mlp.up"),
        matrix("mlp.down"),
    )


def build(config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int, compiled: bool = False) -> FastLlama:
    """A model over `weights` (Hugging Face names); Q, K, V and gate, up are concatenated and transposed once, here."""
    run = through_compiler(forward, (config, max_length)) if compiled else forward
    return FastLlama(config, weights, max_length, run)
