"""The layered worker with a part of it as its teams had written it, where the other variants leave that out.

`in_out`: its Q, K and V weights lie as [in, out], as the worker's did; all others lie as checkpoints have them.
`inline_rope`: RoPE's tables are made anew at each call from its positions, as TEAM-008 left it. (Its mask, which gave
no numbers, is made right.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import torch
from torch import Tensor

from .config import LlamaConfig
from .modular.attention import Attention
from .modular.model import Llama
from .modular.model import build as layered
from .modular.rope import inverse_frequencies
from .settings import Settings


class InlineTables:
    """No tables: cos and sin of the rows that are asked for, computed when they are."""

    def __init__(self, config: LlamaConfig, like: Tensor) -> None:
        self.frequencies = inverse_frequencies(config).to(like.device)
        self.dtype = like.dtype if like.dtype == torch.float64 else torch.float32

    def rows(self, position: int, length: int) -> tuple[Tensor, ...]:
        """As `Tables.rows` of the complex kernel."""
        positions = torch.arange(position, position + length, device=self.frequencies.device)
        angles = torch.outer(positions.to(self.frequencies.dtype), self.frequencies)
        cos, sin = (each.to(self.dtype) for each in (angles.cos(), angles.sin()))
        return (torch.complex(cos, sin),)


def build(
    config: LlamaConfig,
    weights: Mapping[str, Tensor],
    *,
    max_length: int,
    settings: Settings,
    part: Literal["in_out", "inline_rope"],
) -> Llama:
    """The layered model with this part."""
    model = layered(config, weights, max_length=max_length, settings=settings)
    for attention in (cast(Attention, block.attention) for block in model.blocks):
        if part == "inline_rope":
            attention.rotary.tables = InlineTables(config, weights["model.embed_tokens.weight"])
            continue
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
            projection.weight = projection.weight.t().contiguous().t()  # [out, in], whose memory is that of [in, out]
    return model
