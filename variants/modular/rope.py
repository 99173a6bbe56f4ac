"""Rotary position embedding (Su et al. 2021, arXiv 2104.09864): the tables, and three kernels that apply them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from ..config import LlamaConfig


def inverse_frequencies(config: LlamaConfig) -> Tensor:
    """θ^(-2i/D) for i < D/2, float32 [D/2], with Llama-3 scaling where the checkpoint asks for it."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / (config.rope_theta**exponents)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    wavelengths = 2 * math.pi / frequencies
    low = scaling.original_max_position_embeddings / scaling.low_freq_factor
    high = scaling.original_max_position_embeddings / scaling.high_freq_factor
    smooth = (scaling.original_max_position_embeddings / wavelengths - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1 - smooth) * frequencies / scaling.factor + smooth * frequencies
    scaled = torch.where(wavelengths > low, frequencies / scaling.factor, frequencies)
    return torch.where((wavelengths <= low) & (wavelengths >= high), blended, scaled)


def angle_tables(
    config: LlamaConfig, length: int, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """cos and sin of position · frequency, each [length, D/2], computed in float32 on the CPU."""
    angles = torch.outer(torch.arange(length).float(), inverse_frequencies(config))
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def rope_parts(
    kernel: str, config: LlamaConfig, length: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, ...]:
    """What a kernel reads, [length, D/2] each: cos and sin, or both as one complex table (float32 or float64)."""
    if kernel != "complex":
        return angle_tables(config, length, dtype, device)
    wide = dtype if dtype == torch.float64 else torch.float32
    return (torch.complex(*angle_tables(config, length, wide, device)),)


class Tables(Protocol):
    """Whoever owns a kernel's tables: RopeTables, or the unified Cache."""

    def rows(self, position: int, length: int) -> tuple[Tensor, ...]:
        """The tables' rows of positions [position, position + length), [T, D/2] each."""


class RopeTables:
    """Owner of the precomputed tables where caches are split."""

    def __init__(self, kernel: str, config: LlamaConfig, length: int, dtype: torch.dtype, device: torch.device) -> None:
        self.parts = rope_parts(kernel, config, length, dtype, device)

    def rows(self, position: int, length: int) -> tuple[Tensor, ...]:
        """As Tables.rows."""
        return tuple(part.narrow(0, position, length) for part in self.parts)


def rotate_gathered(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The worker's oldest code: even and odd columns gathered, all pairs turned at once, columns put back in order.

    x [B, T, H, D], as the projections leave it: nothing is transposed. 11 operations on data, as there: three
    concatenations, two copies of table rows, six of arithmetic. (The views of single columns, there `narrow` in a
    compiled loop, come from one call, so that Python does not pay for what was compiled.)
    """
    batch, length, heads, size = x.shape
    columns = x.reshape(-1, size).split(1, dim=1)  # D views [N, 1], N = B·T·H
    even, odd = torch.cat(columns[0::2], dim=1), torch.cat(columns[1::2], dim=1)  # [N, D/2]
    rows = (batch, length, heads, size // 2)
    cos, sin = (
        table[None, :, None].expand(rows).reshape(-1, size // 2) for table in (cos, sin)
    )  # copied for each head
    first, second = even * cos - odd * sin, even * sin + odd * cos
    turned = [column for pair in zip(first.split(1, dim=1), second.split(1, dim=1), strict=True) for column in pair]
    return torch.cat(turned, dim=1).view(x.shape)


def rotate_complex(x: Tensor, turns: Tensor) -> Tensor:
    """Neighbours (2i, 2i + 1) as a complex number, times e^(i·angle) (meta's reference code): one pass over the data,
    as Candle's fused `rope_i` makes. x [B, H, T, D]; 16-bit values are turned in float32."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    turned = torch.view_as_complex(wide.unflatten(-1, (-1, 2))) * turns
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def rotate_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs (i, i + D/2) (Hugging Face, Candle's `rope`). x [B, H, T, D]; needs no permuted weights."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


KERNELS: dict[str, Callable[..., Tensor]] = {
    "gathered": rotate_gathered,
    "complex": rotate_complex,
    "rotate_half": rotate_half,
}


class Rotary(nn.Module):
    """Applies one kernel to Q and K."""

    def __init__(self, kernel: str, tables: Tables, boundary: str) -> None:
        super().__init__()
        if kernel == "gathered" and boundary != "bthd":
            raise ValueError(f"the gathered kernel takes [B, T, H, D]: boundary must be 'bthd', not {boundary!r}")
        self.rotate = KERNELS[kernel]
        self.tables = tables
        self.round_trip = boundary == "bthd" and kernel != "gathered"
        self.tokens_at = 1 if kernel == "gathered" else 2

    def forward(self, q: Tensor, k: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """q [B, T, H, D], k [B, T, Hkv, D] if the boundary is bthd, else [B, H, T, D]; the same shapes come back."""
        if self.round_trip:
            q = q.transpose(1, 2).contiguous()  # [B, H, T, D]
            k = k.transpose(1, 2).contiguous()
        rows = self.tables.rows(position, q.shape[self.tokens_at])  # [T, D/2] each
        q = self.rotate(q, *rows)
        k = self.rotate(k, *rows)
        if self.round_trip:
            q = q.transpose(1, 2).contiguous()  # [B, T, H, D]
            k = k.transpose(1, 2).contiguous()
        return q, k
