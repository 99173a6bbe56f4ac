"""Causal self-attention with grouped queries; RoPE, masks and KV storage are plugged in."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..config import LlamaConfig
from .kv_cache import CatKV, PreallocatedKV
from .linear import Linear
from .masks import Masks, apply_mask
from .rope import Rotary


def composite_softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension as five ops (candle_nn::ops::softmax)."""
    shifted = torch.exp(scores - scores.amax(-1, keepdim=True))
    return shifted / shifted.sum(-1, keepdim=True)


def fused_softmax(scores: Tensor) -> Tensor:
    """The same in one op (candle_nn::ops::softmax_last_dim)."""
    return torch.softmax(scores, dim=-1)


class ManualAttention:
    """matmul, scale, mask, softmax, matmul."""

    def __init__(self, application: str, softmax: str) -> None:
        self.application = application
        self.softmax = composite_softmax if softmax == "composite" else fused_softmax

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        """q [B, H, T, D], k and v [B, Hkv, S, D], mask [T, S] or None → [B, H, T, D]."""
        if k.shape[1] != q.shape[1]:
            k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)  # [B, H, S, D]  # phase: scores
            v = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)  # phase: output
        scores = torch.matmul(q, k.transpose(2, 3)) * scale  # [B, H, T, S]  # phase: scores
        if mask is not None:
            scores = apply_mask(scores, mask, self.application)  # phase: mask_apply
        return torch.matmul(self.softmax(scores), v)  # phase: output; softmax: softmax


class SdpaAttention:
    """The library's fused attention with an explicit mask."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        """As ManualAttention."""
        # phase: attention_fused
        grouped = k.shape[1] != q.shape[1]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=grouped)


class Attention(nn.Module):
    """x [B, T, hidden] → [B, T, hidden]."""

    def __init__(
        self,
        config: LlamaConfig,
        projections: tuple[Tensor, Tensor, Tensor, Tensor],
        *,
        rotary: Rotary,
        masks: Masks,
        kv: PreallocatedKV | CatKV,
        attend: ManualAttention | SdpaAttention,
        boundary: str,
    ) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = map(Linear, projections)
        self.rotary = rotary
        self.masks = masks
        self.kv = kv
        self.attend = attend
        self.transpose_first = boundary == "bhtd"
        self.head_dim = config.head_dim
        self.scale = config.head_dim**-0.5

    def forward(self, x: Tensor, position: int) -> Tensor:
        # phase: qkv
        length = x.shape[1]
        q = self.q_proj(x).unflatten(-1, (-1, self.head_dim))  # [B, T, H, D]
        k = self.k_proj(x).unflatten(-1, (-1, self.head_dim))  # [B, T, Hkv, D]
        v = self.v_proj(x).unflatten(-1, (-1, self.head_dim))
        # phase: rope
        if self.transpose_first:
            q, k = self.rotary(q.transpose(1, 2), k.transpose(1, 2), position)  # [B, H, T, D]
        else:
            q, k = self.rotary(q, k, position)
            q, k = q.transpose(1, 2), k.transpose(1, 2)
        k, v = self.kv.append(k, v.transpose(1, 2), position)  # [B, Hkv, S, D]  # phase: cache
        mask = self.masks.get(length, position + length)  # [T, S]  # phase: mask_create
        y = self.attend(q, k, v, mask, self.scale)  # phase: enter
        return self.o_proj(y.transpose(1, 2).flatten(2))  # phase: o_proj
