"""Our best eager Llama on the same weights: fused projections, one SDPA call, KV in place, the last position only.

gpt-fast's recipe (fused QKV, SDPA, static KV) with litgpt's correction for eager use: attention sees the used part of
the buffer, not its full length. At decode and from position 0 no mask is built (SDPA's `is_causal`); a later chunk
gets a mask with its offset, because `is_causal` aligns to the upper left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from .config import LlamaConfig


class FastLlama:
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one."""

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Tensor], max_length: int) -> None:
        self.config = config
        self.max_length = max_length
        self.embedding = weights["model.embed_tokens.weight"]
        self.norm = weights["model.norm.weight"]
        self.head = weights["lm_head.weight"]
        self.layers = []
        for i in range(config.num_hidden_layers):
            attention = f"model.layers.{i}.self_attn."
            mlp = f"model.layers.{i}.mlp."
            qkv = torch.cat([weights[f"{attention}{name}_proj.weight"] for name in "qkv"])  # [(H + 2G)·D, E]
            gate_up = torch.cat([weights[f"{mlp}gate_proj.weight"], weights[f"{mlp}up_proj.weight"]])  # [2F, E]
            self.layers.append(
                (
                    weights[f"model.layers.{i}.input_layernorm.weight"],
                    qkv,
                    weights[f"{attention}o_proj.weight"],
                    weights[f"model.layers.{i}.post_attention_layernorm.weight"],
                    gate_up,
                    weights[f"{mlp}down_proj.weight"],
                )
            )
        frequencies = 1.0 / (config.rope_theta ** (torch.arange(0, config.head_dim, 2).float() / config.head_dim))
        if (s := config.rope_scaling) is not None:
            turns = s.original_max_position_embeddings * frequencies / (2 * math.pi)
            smooth = ((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)).clamp(0, 1)
            frequencies = (1 - smooth) * frequencies / s.factor + smooth * frequencies
        angles = torch.outer(torch.arange(max_length).float(), frequencies)
        angles = torch.cat((angles, angles), dim=-1)  # [max, D]: half-split, no permuted weights
        device, dtype = self.embedding.device, self.embedding.dtype
        self.cos = angles.cos().to(device, dtype)
        sign = torch.ones(config.head_dim)
        sign[: config.head_dim // 2] = -1
        self.sin = (angles.sin() * sign).to(device, dtype)  # rotate_half's minus sign, folded in
        self.kvs: list[tuple[Tensor, Tensor]] = []

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        c = self.config
        batch, length = tokens.shape
        end = position + length
        heads, kv_heads, head_dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        x = F.embedding(tokens, self.embedding)  # [B, T, E]
        shape = (x.shape[-1],)
        if not self.kvs or self.kvs[0][0].shape[0] != batch:
            size = (batch, kv_heads, self.max_length, head_dim)
            self.kvs = [
                (torch.empty(size, dtype=x.dtype, device=x.device), torch.empty(size, dtype=x.dtype, device=x.device))
                for _ in self.layers
            ]
        cos, sin = self.cos[position:end, None], self.sin[position:end, None]  # [T, 1, D]
        mask = None
        if position > 0 and length > 1:
            mask = torch.ones(length, end, dtype=torch.bool, device=x.device).tril_(position)  # True = seen
        last = len(self.layers) - 1
        for i, (attention_norm, qkv, o, mlp_norm, gate_up, down) in enumerate(self.layers):
            y = F.linear(F.rms_norm(x, shape, attention_norm, c.rms_norm_eps), qkv)
            y = y.view(batch, length, heads + 2 * kv_heads, head_dim)
            qk = y[:, :, : heads + kv_heads]
            qk = qk * cos + qk.roll(head_dim // 2, -1) * sin  # Q and K turned together
            k_all, v_all = self.kvs[i]
            k_all[:, :, position:end] = qk[:, :, heads:].transpose(1, 2)
            v_all[:, :, position:end] = y[:, :, heads + kv_heads :].transpose(1, 2)
            q = qk[:, :, :heads].transpose(1, 2)  # [B, H, T, D]
            if i == last and length > 1:  # from here on only the last position is asked for
                x, q, mask, causal = x[:, -1:], q[:, :, -1:], None, False
            else:
                causal = position == 0 and length > 1
            y = F.scaled_dot_product_attention(
                q, k_all[:, :, :end], v_all[:, :, :end], mask, is_causal=causal, enable_gqa=heads != kv_heads
            )
            x = x + F.linear(y.transpose(1, 2).flatten(2), o)
            gate, up = F.linear(F.rms_norm(x, shape, mlp_norm, c.rms_norm_eps), gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, down)
        return F.linear(F.rms_norm(x, shape, self.norm, c.rms_norm_eps)[:, -1], self.head)

    def reset(self) -> None:
        """Nothing to forget: positions beyond the next call's are never read."""


def build(config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int) -> FastLlama:
    """A model over `weights` (Hugging Face names); Q, K, V and gate, up are concatenated once, here."""
    return FastLlama(config, weights, max_length)
