"""Grouped queries: keys and values repeated first, or by PyTorch's `enable_gqa`; float32 and bfloat16."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as attention

Inputs = tuple[Tensor, Tensor, Tensor]

HEADS, GROUPS, WIDTH = 16, 4, 64


def inputs(seed: int, new: int, known: int, dtype: torch.dtype) -> Inputs:
    draw = torch.Generator().manual_seed(seed)
    shapes = ((1, HEADS, new, WIDTH), (1, GROUPS, known, WIDTH), (1, GROUPS, known, WIDTH))
    q, k, v = (torch.randn(shape, generator=draw).to(dtype) for shape in shapes)
    return q, k, v


def prefill_float32(seed: int) -> Inputs:
    return inputs(seed, 256, 256, torch.float32)


def prefill_bfloat16(seed: int) -> Inputs:
    return inputs(seed, 256, 256, torch.bfloat16)


def decode_float32(seed: int) -> Inputs:
    return inputs(seed, 1, 1024, torch.float32)


def decode_bfloat16(seed: int) -> Inputs:
    return inputs(seed, 1, 1024, torch.bfloat16)


def repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = (each.repeat_interleave(HEADS // GROUPS, dim=1) for each in (k, v))
    with torch.inference_mode():
        return attention(q, k, v, is_causal=q.shape[2] > 1)


def built_in(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.inference_mode():
        return attention(q, k, v, is_causal=q.shape[2] > 1, enable_gqa=True)


def near(got: Tensor, expected: Tensor) -> bool:
    """bfloat16 keeps eight bits, and the two add in another order."""
    tolerance = 2e-2 if got.dtype == torch.bfloat16 else 1e-4
    return bool(torch.allclose(got.float(), expected.float(), atol=tolerance, rtol=tolerance))
