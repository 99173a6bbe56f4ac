"""RMSNorm by hand, by PyTorch, and LayerNorm."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

EPS = 1e-5


def rows(seed: int, count: int, width: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=draw), torch.randn(width, generator=draw)


def one_row(seed: int) -> tuple[Tensor, Tensor]:
    return rows(seed, 1, 1024)


def rows_256(seed: int) -> tuple[Tensor, Tensor]:
    return rows(seed, 256, 1024)


def by_hand(x: Tensor, weight: Tensor) -> Tensor:
    with torch.inference_mode():
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def by_pytorch(x: Tensor, weight: Tensor) -> Tensor:
    with torch.inference_mode():
        return functional.rms_norm(x, (x.shape[-1],), weight, EPS)


def layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    with torch.inference_mode():
        return functional.layer_norm(x, (x.shape[-1],), weight, None, EPS)


def any_norm(got: Tensor, expected: Tensor) -> bool:
    """Two norms give two answers: what must agree is the shape, and that both are finite."""
    return got.shape == expected.shape and bool(got.isfinite().all())
