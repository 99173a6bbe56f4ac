"""The layered worker with a part of it as its teams had written it, where the other variants leave that out.

`in_out`: its Q, K and V weights lie as [in, out], as the worker's did; all others lie as checkpoints have them.
`inline`: RoPE's frequencies and tables are made anew in each layer and call, and a mask for each prompt, none at
decode, as TEAM-008 left it. (Its mask was multiplied by -inf, which gave no numbers where a key is seen: the lowest
number takes its place, and a later chunk is masked too.)
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


class PromptMasks:
    """A new mask per layer and call of a prompt, made where the scores are; at decode none. It takes the four
    operations that theirs took: which keys are seen, in the type of the scores, turned round, times the lowest."""

    def __init__(self, like: Tensor) -> None:
        self.dtype, self.device = like.dtype, like.device

    def begin(self, length: int, kv_length: int) -> None:
        pass

    def get(self, length: int, kv_length: int) -> Tensor | None:
        if length == 1:
            return None
        keys = torch.arange(kv_length, device=self.device)
        seen = (keys <= keys[kv_length - length :, None]).to(self.dtype)
        return (1 - seen) * torch.finfo(self.dtype).min


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
            attention.masks = PromptMasks(like)
            continue
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
            projection.weight = projection.weight.t().contiguous().t()  # [out, in], whose memory is that of [in, out]
    return model
