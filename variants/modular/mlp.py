"""The feed-forward part: SwiGLU (Shazeer 2020, arXiv 2002.05202)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from .linear import Linear


class SwiGLU(nn.Module):
    """down(silu(gate(x)) · up(x)); x [B, T, hidden] → [B, T, hidden]."""

    def __init__(self, gate: Tensor, up: Tensor, down: Tensor) -> None:
        super().__init__()
        self.gate_proj = Linear(gate)
        self.up_proj = Linear(up)
        self.down_proj = Linear(down)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
