"""Causal attention by one call of PyTorch's own, or by flex_attention, which a compiler makes from a rule."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

Inputs = tuple[Tensor, Tensor, Tensor]

HEADS, WIDTH = 6, 48  # of Llama's 15 million parameters

compiled = torch.compile(flex_attention, dynamic=False)


def inputs(seed: int, length: int) -> Inputs:
    draw = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn((1, HEADS, length, WIDTH), generator=draw) for _ in range(3))
    return q, k, v


def short(seed: int) -> Inputs:
    return inputs(seed, 128)


def middle(seed: int) -> Inputs:
    return inputs(seed, 512)


def long(seed: int) -> Inputs:
    return inputs(seed, 2048)


@cache
def causal(length: int) -> BlockMask:
    return create_block_mask(lambda batch, head, row, column: row >= column, None, None, length, length, device="cpu")


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.inference_mode():
        return scaled_dot_product_attention(q, k, v, is_causal=True)


def flex(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.inference_mode():
        return compiled(q, k, v, block_mask=causal(q.shape[2]))


def near(got: Tensor, expected: Tensor) -> bool:
    """The two add in another order."""
    return bool(torch.allclose(got, expected, atol=1e-4, rtol=1e-4))
