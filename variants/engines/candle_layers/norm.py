"""RMSNorm of several operations: Candle's fused one is not exposed."""

from __future__ import annotations

from typing import Any


class RMSNorm:
    """x / rms(x) · weight, x [B·T, E]."""

    def __init__(self, weight: Any, eps: float) -> None:
        self.weight, self.eps, self.width = weight, eps, float(weight.shape[0])

    def __call__(self, x: Any) -> Any:
        squares = x.sqr().sum_keepdim(1) / self.width
        return x.broadcast_div((squares + self.eps).sqrt()).broadcast_mul(self.weight)
