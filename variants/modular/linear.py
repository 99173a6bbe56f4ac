"""A linear layer over given weights."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class Linear(nn.Module):
    """y = x Wᵀ, without bias. The weight [out, in] is used where it lies (memory-mapped), never copied."""

    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


def interleave_rows(weight: Tensor, head_dim: int) -> Tensor:
    """Rows of a Q or K projection [H·D, in] from half-split order (i, i + D/2) to interleaved (2i, 2i + 1).

    Hugging Face's converter permuted the original interleaved weights the other way; kernels that rotate neighbours
    need this inverse, and then give the same scores because Q and K are permuted alike.
    """
    rows, columns = weight.shape
    heads = rows // head_dim
    return weight.view(heads, 2, head_dim // 2, columns).transpose(1, 2).reshape(rows, columns)


class Embedding(nn.Module):
    """Token ids [B, T] → vectors [B, T, hidden]."""

    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.weight)
