"""The layered worker with a part of it as its teams had written it, where the other variants leave that out.

`in_out`: its Q, K and V weights lie as [in, out], as the worker's did; all others lie as checkpoints have them.
`inline`: RoPE's frequencies and tables are made anew in each layer and call, and a mask for each prompt, none at
decode, as TEAM-008 left it. (That mask, which gave no numbers, is made right.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import torch
from torch import Tensor

from .config import LlamaConfig
from .modular.attention import Attention
from .modular.masks import FreshMasks
from .modular.model import Llama
from .modular.model import build as layered
from .modular.rope import inverse_frequencies
from .settings import Settings


class InlineTables:
    """No tables: frequencies, cos and sin of the rows that are asked for, all computed on the host when they are."""

    def __init__(self, config: LlamaConfig, like: Tensor) -> None:
        self.config = config
        self.dtype = like.dtype if like.dtype == torch.float64 else torch.float32
        self.device = like.device

    def rows(self, position: int, length: int) -> tuple[Tensor, ...]:
        """As `Tables.rows` of the complex kernel."""
        positions = torch.arange(position, position + length).float()
        angles = torch.outer(positions, inverse_frequencies(self.config))
        return (torch.complex(*(each.to(self.device, self.dtype) for each in (angles.cos(), angles.sin()))),)


class PromptMasks(FreshMasks):
    """A new mask per layer and call of a prompt, made where the scores are; at decode none."""

    def __init__(self, application: str, like: Tensor) -> None:
        super().__init__(application, like.dtype, like.device)
        self.host = like.device

    def get(self, length: int, kv_length: int) -> Tensor | None:
        return None if length == 1 else super().get(length, kv_length)


def build(
    config: LlamaConfig,
    weights: Mapping[str, Tensor],
    *,
    max_length: int,
    settings: Settings,
    part: Literal["in_out", "inline"],
) -> Llama:
    """The layered model with this part."""
    model = layered(config, weights, max_length=max_length, settings=settings)
    like = weights["model.embed_tokens.weight"]
    for attention in (cast(Attention, block.attention) for block in model.blocks):
        if part == "inline":
            attention.rotary.tables = InlineTables(config, like)
            attention.masks = PromptMasks(settings.mask_application, like)
            continue
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
            projection.weight = projection.weight.t().contiguous().t()  # [out, in], whose memory is that of [in, out]
    return model
