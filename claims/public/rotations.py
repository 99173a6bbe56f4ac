"""RoPE with the table of angles made in each call, or looked up in one that was made beforehand."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

HEADS, WIDTH, MOST = 16, 64, 4096

Inputs = tuple[Tensor, Tensor]

FREQUENCIES = 1.0 / 10000 ** (torch.arange(0, WIDTH, 2).float() / WIDTH)


def heads(seed: int, positions: int) -> Inputs:
    draw = torch.Generator().manual_seed(seed)
    start = int(torch.randint(0, MOST - positions, (1,), generator=draw))
    return torch.randn(1, HEADS, positions, WIDTH, generator=draw), torch.arange(start, start + positions)


def one_position(seed: int) -> Inputs:
    return heads(seed, 1)


def positions_128(seed: int) -> Inputs:
    return heads(seed, 128)


def positions_1024(seed: int) -> Inputs:
    return heads(seed, 1024)


def table(positions: Tensor) -> tuple[Tensor, Tensor]:
    angles = torch.outer(positions.float(), FREQUENCIES)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


def made_each_time(x: Tensor, positions: Tensor) -> Tensor:
    with torch.inference_mode():
        return rotated(x, *table(positions))


def looked_up() -> Callable[[Tensor, Tensor], Tensor]:
    cos, sin = table(torch.arange(MOST))

    def call(x: Tensor, positions: Tensor) -> Tensor:
        with torch.inference_mode():
            return rotated(x, cos[positions], sin[positions])

    return call
