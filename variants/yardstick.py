"""The frozen yardstick: never edit this file (a test holds its hash).

Saved runs are compared as ratios to it, so it must stay the same code for ever: a plain Llama over tensors, with
half-split RoPE, manual attention, one mask per forward, a preallocated KV buffer, logits of the last position.
A change to any other variant moves that variant against this one, on whatever machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from .config import LlamaConfig


class Yardstick:
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one."""

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Tensor], max_length: int) -> None:
        self.config = config
        self.weights = weights
        self.max_length = max_length
        frequencies = 1.0 / (config.rope_theta ** (torch.arange(0, config.head_dim, 2).float() / config.head_dim))
        if (s := config.rope_scaling) is not None:
            turns = s.original_max_position_embeddings * frequencies / (2 * math.pi)
            smooth = ((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)).clamp(0, 1)
            frequencies = (1 - smooth) * frequencies / s.factor + smooth * frequencies
        angles = torch.outer(torch.arange(max_length).float(), frequencies)
        embedding = weights["model.embed_tokens.weight"]
        self.cos = angles.cos().to(embedding.device, embedding.dtype)  # [max, D/2]
        self.sin = angles.sin().to(embedding.device, embedding.dtype)
        self.kvs: list[tuple[Tensor, Tensor]] = []

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        w, c = self.weights, self.config
        batch, length = tokens.shape
        end = position + length
        heads, groups, size = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        x = F.embedding(tokens, w["model.embed_tokens.weight"])  # [B, T, E]
        if not self.kvs or self.kvs[0][0].shape[0] != batch:
            self.kvs = [
                (x.new_empty(batch, groups, self.max_length, size), x.new_empty(batch, groups, self.max_length, size))
                for _ in range(c.num_hidden_layers)
            ]
        mask = None
        if length > 1:
            mask = torch.full((length, end), float("-inf"), dtype=x.dtype, device=x.device).triu_(position + 1)
        cos, sin = self.cos[position:end], self.sin[position:end]  # [T, D/2]
        for i, (k_all, v_all) in enumerate(self.kvs):
            p = f"model.layers.{i}."
            y = F.rms_norm(x, (c.hidden_size,), w[f"{p}input_layernorm.weight"], c.rms_norm_eps)
            q = F.linear(y, w[f"{p}self_attn.q_proj.weight"]).view(batch, length, heads, size).transpose(1, 2)
            k = F.linear(y, w[f"{p}self_attn.k_proj.weight"]).view(batch, length, groups, size).transpose(1, 2)
            v = F.linear(y, w[f"{p}self_attn.v_proj.weight"]).view(batch, length, groups, size).transpose(1, 2)
            q1, q2 = q.chunk(2, -1)
            q = torch.cat((q1 * cos - q2 * sin, q2 * cos + q1 * sin), -1)  # [B, H, T, D]
            k1, k2 = k.chunk(2, -1)
            k_all[:, :, position:end] = torch.cat((k1 * cos - k2 * sin, k2 * cos + k1 * sin), -1)
            v_all[:, :, position:end] = v
            k, v = k_all[:, :, :end], v_all[:, :, :end]  # [B, G, S, D]
            if groups != heads:
                k, v = k.repeat_interleave(heads // groups, 1), v.repeat_interleave(heads // groups, 1)
            scores = torch.matmul(q, k.transpose(2, 3)) * size**-0.5  # [B, H, T, S]
            if mask is not None:
                scores = scores + mask
            y = torch.matmul(torch.softmax(scores, -1), v).transpose(1, 2).reshape(batch, length, -1)
            x = x + F.linear(y, w[f"{p}self_attn.o_proj.weight"])
            y = F.rms_norm(x, (c.hidden_size,), w[f"{p}post_attention_layernorm.weight"], c.rms_norm_eps)
            y = F.silu(F.linear(y, w[f"{p}mlp.gate_proj.weight"])) * F.linear(y, w[f"{p}mlp.up_proj.weight"])
            x = x + F.linear(y, w[f"{p}mlp.down_proj.weight"])
        x = F.rms_norm(x[:, -1], (c.hidden_size,), w["model.norm.weight"], c.rms_norm_eps)
        return F.linear(x, w["lm_head.weight"])

    def reset(self) -> None:
        """Nothing to forget: positions beyond the next call's are never read."""


def build(config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int) -> Yardstick:
    """A model over `weights` (Hugging Face names)."""
    return Yardstick(config, weights, max_length)
