"""What the dispute's worker had of a layer, in the best code known here: heads first once, one pass for RoPE and one
kernel for attention. One token is multiplied by Q, K and V joined; for more, three products are faster at 7B width.
The weights lie as [in, out], as the worker's."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .components import WORKER_LAYER, Component, Inputs
from .config import LlamaConfig
from .modular.rope import rope_parts, rotate_complex


def build(name: str, config: LlamaConfig, *, tokens: int, seed: int, device: str = "cpu") -> Component:
    """`WORKER_LAYER` at T = `tokens`, as `components.build` has it. Raises ValueError for any other part."""
    if name != WORKER_LAYER:
        raise ValueError(f"no component {name!r} of the ladder; there is {WORKER_LAYER}")
    given, head_dim = Inputs(config, tokens, seed, device), config.head_dim
    rows = rope_parts("complex", config, tokens, torch.float32, torch.device(device))
    x, weights = given.x(), list(given.projections())
    if tokens == 1:
        weights = [torch.cat(weights)]
    matrices = [weight.t().contiguous() for weight in weights]  # [E, H·D] each, or one [E, 3·H·D]

    def layer() -> Tensor:
        projected = (torch.matmul(x, matrix) for matrix in matrices)
        q, k, v = next(projected).chunk(3, dim=-1) if tokens == 1 else projected  # [1, T, H·D]
        q, k, v = (part.unflatten(-1, (-1, head_dim)).transpose(1, 2) for part in (q, k, v))  # [1, H, T, D]
        q, k = rotate_complex(q, *rows), rotate_complex(k, *rows)
        return F.scaled_dot_product_attention(q, k, v, is_causal=tokens > 1).transpose(1, 2).flatten(2)

    return Component(layer, lambda: given.layered(interleaved=True))
