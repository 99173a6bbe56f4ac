"""RMSNorm (Zhang & Sennrich 2019, arXiv 1910.07467), as separate ops and as the library's one call."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CompositeRMSNorm(nn.Module):
    """x / rms(x) · weight from elementwise ops, the mean taken in at least float32 (as Hugging Face does)."""

    weight: Tensor

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        inverse_rms = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * inverse_rms).to(x.dtype) * self.weight


class FusedRMSNorm(nn.Module):
    """The same in one call (candle_nn::ops::rms_norm's counterpart)."""

    weight: Tensor

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.eps = eps
        self.shape = (weight.numel(),)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.shape, self.weight, self.eps)
