"""Llama as one function over plain tensors: no module calls, no policy objects (axis B, level `inline`).

The same operations in the same order as `single_file` with team005_proposal's settings: unified cache, masks by
(T, S), RoPE by complex numbers behind a [B, T, H, D] boundary (or heads first once, [B, H, T, D]), preallocated KV,
composite softmax. What differs is the number of Python calls between the operations, nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .config import LlamaConfig


class Layer(NamedTuple):
    """One layer's weights."""

    attention_norm: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    mlp_norm: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor


class InlineLlama:
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one."""

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Tensor], max_length: int, boundary: str) -> None:
        self.config = config
        self.round_trip = boundary == "bthd"
        self.max_length = max_length
        self.embedding = weights["model.embed_tokens.weight"]
        self.norm = weights["model.norm.weight"]
        self.head = weights["lm_head.weight"]
        self.layers = [
            Layer(
                weights[f"model.layers.{i}.input_layernorm.weight"],
                self._interleaved(weights[f"model.layers.{i}.self_attn.q_proj.weight"]),
                self._interleaved(weights[f"model.layers.{i}.self_attn.k_proj.weight"]),
                weights[f"model.layers.{i}.self_attn.v_proj.weight"],
                weights[f"model.layers.{i}.self_attn.o_proj.weight"],
                weights[f"model.layers.{i}.post_attention_layernorm.weight"],
                weights[f"model.layers.{i}.mlp.gate_proj.weight"],
                weights[f"model.layers.{i}.mlp.up_proj.weight"],
                weights[f"model.layers.{i}.mlp.down_proj.weight"],
            )
            for i in range(config.num_hidden_layers)
        ]
        frequencies = 1.0 / (config.rope_theta ** (torch.arange(0, config.head_dim, 2).float() / config.head_dim))
        if (s := config.rope_scaling) is not None:
            turns = s.original_max_position_embeddings * frequencies / (2 * math.pi)
            smooth = ((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)).clamp(0, 1)
            frequencies = (1 - smooth) * frequencies / s.factor + smooth * frequencies
        angles = torch.outer(torch.arange(max_length).float(), frequencies)
        wide = torch.float64 if self.embedding.dtype == torch.float64 else torch.float32
        turns = torch.complex(angles.cos().to(wide), angles.sin().to(wide))
        self.turns = turns.to(self.embedding.device)  # [max, D/2]
        self.masks: dict[tuple[int, int], Tensor] = {}
        self.kvs: list[tuple[Tensor, Tensor]] = []

    def _interleaved(self, weight: Tensor) -> Tensor:
        """Q or K rows from half-split to interleaved order."""
        rows, columns = weight.shape
        half = self.config.head_dim // 2
        return weight.view(-1, 2, half, columns).transpose(1, 2).reshape(rows, columns)

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        batch, length = tokens.shape
        end = position + length  # phase: other
        head_dim, eps = self.config.head_dim, self.config.rms_norm_eps
        heads, kv_heads = self.config.num_attention_heads, self.config.num_key_value_heads
        scale = head_dim**-0.5  # phase: other
        x = F.embedding(tokens, self.embedding)  # [B, T, E]  # phase: embedding
        shape = (x.shape[-1],)  # phase: other
        sixteen_bit = x.dtype in (torch.float16, torch.bfloat16)
        if not self.kvs or self.kvs[0][0].shape[0] != batch:
            # phase: cache
            size = (batch, kv_heads, self.max_length, head_dim)
            self.kvs = [
                (torch.empty(size, dtype=x.dtype, device=x.device), torch.empty(size, dtype=x.dtype, device=x.device))
                for _ in self.layers
            ]
        for layer, (k_all, v_all) in zip(self.layers, self.kvs, strict=True):
            y = F.rms_norm(x, shape, layer.attention_norm, eps)  # phase: norm
            # phase: qkv
            q = F.linear(y, layer.q).unflatten(-1, (-1, head_dim))  # [B, T, H, D]
            k = F.linear(y, layer.k).unflatten(-1, (-1, head_dim))
            v = F.linear(y, layer.v).unflatten(-1, (-1, head_dim))

            # phase: rope
            if self.round_trip:
                q = q.transpose(1, 2).contiguous()  # [B, H, T, D]
                k = k.transpose(1, 2).contiguous()
            else:
                q, k = q.transpose(1, 2), k.transpose(1, 2)
            turns = self.turns.narrow(0, position, length)
            if sixteen_bit:
                q, k = q.float(), k.float()
            turned = torch.view_as_complex(q.unflatten(-1, (-1, 2))) * turns
            q = torch.view_as_real(turned).flatten(-2).to(x.dtype)
            turned = torch.view_as_complex(k.unflatten(-1, (-1, 2))) * turns
            k = torch.view_as_real(turned).flatten(-2).to(x.dtype)
            if self.round_trip:  # to [B, T, H, D] and back
                q = q.transpose(1, 2).contiguous()
                k = k.transpose(1, 2).contiguous()
                q, k = q.transpose(1, 2), k.transpose(1, 2)
            v = v.transpose(1, 2)

            # phase: cache
            k_all.narrow(2, position, length).copy_(k)
            v_all.narrow(2, position, length).copy_(v)
            k, v = k_all.narrow(2, 0, end), v_all.narrow(2, 0, end)  # [B, G, S, D]
            # phase: mask_create
            mask = None
            if length > 1:
                mask = self.masks.get((length, end))
                if mask is None:
                    mask = torch.full((length, end), float("-inf"), dtype=x.dtype, device=x.device).triu_(position + 1)
                    self.masks[length, end] = mask
            if kv_heads != heads:
                k = k.repeat_interleave(heads // kv_heads, dim=1)  # phase: scores
                v = v.repeat_interleave(heads // kv_heads, dim=1)  # phase: output
            scores = torch.matmul(q, k.transpose(2, 3)) * scale  # [B, H, T, S]  # phase: scores
            if mask is not None:
                scores = scores + mask  # phase: mask_apply
            shifted = torch.exp(scores - scores.amax(-1, keepdim=True))  # phase: softmax
            y = torch.matmul(shifted / shifted.sum(-1, keepdim=True), v)  # phase: output; /: softmax
            x = x + F.linear(y.transpose(1, 2).flatten(2), layer.o)  # phase: other; linear: o_proj

            y = F.rms_norm(x, shape, layer.mlp_norm, eps)  # phase: norm
            # phase: other; linear: mlp
            x = x + F.linear(F.silu(F.linear(y, layer.gate)) * F.linear(y, layer.up), layer.down)
        # phase: other; linear: lm_head; rms_norm: final_norm
        return F.linear(F.rms_norm(x, shape, self.norm, eps)[:, -1], self.head)

    def reset(self) -> None:
        """Nothing to forget: positions beyond the next call's are never read."""


def build(
    config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int, boundary: str = "bthd"
) -> InlineLlama:
    """A model over `weights` (Hugging Face names); `boundary` as in `Settings`."""
    return InlineLlama(config, weights, max_length, boundary)
