"""What the dispute's worker had of a layer, in the best code known here: heads first once, one pass for RoPE and one
kernel for attention. One token is multiplied by Q, K and V joined; for more, three products are faster at 7B width.
The weights lie as [in, out], as the worker's."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .components import ROPE_ATTENTION, WORKER_LAYER, Component, Inputs
from .config import LlamaConfig
from .modular.rope import rope_parts, rotate_complex


def build(name: str, config: LlamaConfig, *, tokens: int, seed: int, device: str = "cpu") -> Component:
    """`WORKER_LAYER` or `ROPE_ATTENTION` at T = `tokens`, as `components.build` has them. Raises ValueError for any
    other part."""
    if name not in (WORKER_LAYER, ROPE_ATTENTION):
        raise ValueError(f"no component {name!r} of the ladder; there are {WORKER_LAYER} and {ROPE_ATTENTION}")
    given = Inputs(config, tokens, seed, device)
    rows = rope_parts("complex", config, tokens, torch.float32, torch.device(device))

    def turn_and_attend(*parts: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (-1, config.head_dim)).transpose(1, 2) for part in parts)  # [1, H, T, D]
        q, k = rotate_complex(q, *rows), rotate_complex(k, *rows)
        return F.scaled_dot_product_attention(q, k, v, is_causal=tokens > 1).transpose(1, 2).flatten(2)

    if name == ROPE_ATTENTION:
        drawn = [part.flatten(2) for part in (given.q(), given.k(), given.v())]
        return Component(lambda: turn_and_attend(*drawn), lambda: given.turned_and_attended(interleaved=True))
    x, matrices = given.x(), list(given.projections())  # [E, H·D] each
    if tokens == 1:
        matrices = [torch.cat(matrices, 1)]  # [E, 3·H·D]

    def layer() -> Tensor:
        projected = (torch.matmul(x, matrix) for matrix in matrices)
        return turn_and_attend(*(next(projected).chunk(3, dim=-1) if tokens == 1 else projected))  # [1, T, H·D]

    return Component(layer, lambda: given.layered(interleaved=True))
