"""What a cache of fewer bits keeps: variants that have one are held to a reference that rounds in the same way."""

from __future__ import annotations

import torch
from torch import Tensor


def rounded(x: Tensor, how: str) -> Tensor:
    """Keys or values [..., D] as they are read back; `how`: as `Variant.cache_rounding`, and "" leaves them."""
    if how == "bfloat16":
        return x.bfloat16().to(x.dtype)
    if how == "int8":
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-20) / 127
        return (torch.round(wide / scale) * scale).to(x.dtype)
    return x
