"""Rotary position embedding (Su et al. 2021, arXiv 2104.09864): the tables, and four kernels that apply them."""

from __future__ import annotations

import math

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


class RopeTables:
    """Owner of the precomputed tables where caches are split."""

    def __init__(self, config: LlamaConfig, length: int, dtype: torch.dtype, device: torch.device) -> None:
        self.cos, self.sin = angle_tables(config, length, dtype, device)

    def rows(self, position: int, length: int) -> tuple[Tensor, Tensor]:
        """cos and sin of positions [position, position + length), each [T, D/2]."""
        return self.cos.narrow(0, position, length), self.sin.narrow(0, position, length)


def rotate_narrow_cat(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pair by pair, then one concatenation: the worker's oldest code (D/2 narrow/cat steps). x [B, H, T, D]."""
    columns = []
    for pair in range(x.shape[-1] // 2):
        even = x.narrow(-1, 2 * pair, 1)
        odd = x.narrow(-1, 2 * pair + 1, 1)
        c = cos.narrow(-1, pair, 1)
        s = sin.narrow(-1, pair, 1)
        columns.append(even * c - odd * s)
        columns.append(even * s + odd * c)
    return torch.cat(columns, dim=-1)


def rotate_pair_stack(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """All pairs (2i, 2i + 1) at once, stacked back (torchtune; the counterpart of candle's rope_i). x [B, H, T, D]."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)  # [B, H, T, D/2] each
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def rotate_complex(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs as complex numbers times e^(iφ) (meta's reference code). x [B, H, T, D], float32 or float64."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    turned = torch.view_as_complex(wide.unflatten(-1, (-1, 2)).contiguous()) * torch.complex(cos, sin).to(
        torch.complex128 if wide.dtype == torch.float64 else torch.complex64
    )
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def rotate_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs (i, i + D/2) (Hugging Face, Candle's `rope`). x [B, H, T, D]; needs no permuted weights."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


KERNELS = {
    "narrow_cat": rotate_narrow_cat,
    "pair_stack": rotate_pair_stack,
    "complex": rotate_complex,
    "rotate_half": rotate_half,
}


class Rotary(nn.Module):
    """Applies one kernel to Q and K. `tables` is whoever owns cos and sin: RopeTables, or the unified Cache."""

    def __init__(self, kernel: str, tables: object, boundary: str) -> None:
        super().__init__()
        self.rotate = KERNELS[kernel]
        self.tables = tables
        self.round_trip = boundary == "bthd"

    def forward(self, q: Tensor, k: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """q [B, T, H, D], k [B, T, Hkv, D] if the boundary is bthd, else [B, H, T, D]; the same shapes come back."""
        if self.round_trip:
            q = q.transpose(1, 2).contiguous()  # [B, H, T, D]
            k = k.transpose(1, 2).contiguous()
        cos, sin = self.tables.rows(position, q.shape[2])  # type: ignore[attr-defined]  # [T, D/2]
        q = self.rotate(q, cos, sin)
        k = self.rotate(k, cos, sin)
        if self.round_trip:
            q = q.transpose(1, 2).contiguous()  # [B, T, H, D]
            k = k.transpose(1, 2).contiguous()
        return q, k
