"""The whole model, and where its parts are chosen (`build`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import candle
from torch import Tensor

from ...config import LlamaConfig
from ..candle_io import Reader, load, type_of
from .attention import Attention
from .cache import KV, Cache
from .masks import FreshMasks, KeptMasks, Masks, PromptMasks
from .mlp import SwiGLU
from .norm import RMSNorm
from .rope import InlineAngles, RopeTables, Rotary, Tables


class Block:
    """One decoder layer, pre-norm, two residual branches."""

    def __init__(self, attention_norm: RMSNorm, attention: Attention, mlp_norm: RMSNorm, mlp: SwiGLU) -> None:
        self.attention_norm, self.attention, self.mlp_norm, self.mlp = attention_norm, attention, mlp_norm, mlp

    def __call__(self, x: Any, batch: int, position: int) -> Any:
        x = x + self.attention(self.attention_norm(x), batch, position)
        return x + self.mlp(self.mlp_norm(x))


class Llama:
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one."""

    def __init__(self, weights: Mapping[str, Any], blocks: list[Block], norm: RMSNorm, kvs: list[KV]) -> None:
        self.embedding, self.head = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
        self.blocks, self.norm, self.kvs, self.read = blocks, norm, kvs, Reader()

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        batch, length = tokens.shape
        x = self.embedding.index_select(candle.Tensor(tokens.flatten().tolist()), 0)  # [B·T, E]
        for block in self.blocks:
            x = block(x, batch, position)
        width = x.shape[1]
        x = x.reshape((batch, length, width)).narrow(1, length - 1, 1).contiguous().reshape((batch, width))
        return self.read(self.norm(x).matmul(self.head.t()))

    def reset(self) -> None:
        for kv in self.kvs:
            kv.reset()


def build(
    config: LlamaConfig,
    weights: Mapping[str, Tensor],
    *,
    max_length: int,
    cache: Literal["split", "unified"] = "split",
    masks: Literal["fresh", "prompts", "per_layer", "per_model"] = "fresh",
    inline_angles: bool = False,
) -> Llama:
    """A model from the parts that are named. One Cache has all masks, whatever `masks` says."""
    loaded, dtype, layers = load(config, weights, worker=True), type_of(weights), config.num_hidden_layers
    tables: Tables
    masks_of: list[Masks]  # by layer
    # Ownership: each part on its own, or one Cache that is plugged into all three places.
    if cache == "unified":
        tables = owner = Cache(config, max_length, dtype)
        masks_of, kvs = [owner] * layers, owner.kvs
    else:
        make_tables: Callable[..., Tables] = InlineAngles if inline_angles else RopeTables
        tables = make_tables(config, max_length, dtype)
        made_anew: dict[str, Callable[[Any], Masks]] = {"fresh": FreshMasks, "prompts": PromptMasks}
        make = made_anew.get(masks, KeptMasks)
        masks_of = [make(dtype)] * layers if masks == "per_model" else [make(dtype) for _ in range(layers)]
        kvs = [KV() for _ in range(layers)]

    def norm(name: str) -> RMSNorm:
        return RMSNorm(loaded[name], config.rms_norm_eps)

    rotary = Rotary(tables)
    blocks = [
        Block(
            norm(f"model.layers.{layer}.input_layernorm.weight"),
            Attention(config, loaded, f"model.layers.{layer}.self_attn.", rotary, masks_of[layer], kvs[layer]),
            norm(f"model.layers.{layer}.post_attention_layernorm.weight"),
            SwiGLU(loaded, f"model.layers.{layer}.mlp."),
        )
        for layer in range(layers)
    ]
    return Llama(loaded, blocks, norm("model.norm.weight"), kvs)
