"""The feed-forward part of a layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from candle import functional


class SwiGLU:
    """down(silu(gate(x)) · up(x)), x [B·T, E]."""

    def __init__(self, weights: Mapping[str, Any], prefix: str) -> None:
        self.gate, self.up, self.down = (weights[f"{prefix}{part}_proj.weight"] for part in ("gate", "up", "down"))

    def __call__(self, x: Any) -> Any:
        return (functional.silu(x.matmul(self.gate.t())) * x.matmul(self.up.t())).matmul(self.down.t())
