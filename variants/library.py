"""The library's own model: transformers' LlamaForCausalLM over the same weights ("use the library")."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaForCausalLM, StaticCache
from transformers import LlamaConfig as TheirConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from .config import LlamaConfig, config_json


class LibraryLlama:
    """Adapts LlamaForCausalLM to the workbench's two methods; `logits_to_keep=1`, as its own `generate` does.
    `attention` is transformers' own name of an implementation: "eager" or "sdpa"."""

    def __init__(
        self,
        config: LlamaConfig,
        weights: Mapping[str, Tensor],
        *,
        max_length: int,
        attention: str,
        static: bool = False,
    ) -> None:
        embedding = weights["model.embed_tokens.weight"]
        described = config_json(config, str(embedding.dtype).removeprefix("torch."))
        # Their config demands that the heads divide hidden_size. Their model takes heads of any size.
        theirs = TheirConfig.from_dict(described | {"num_attention_heads": 1}, attn_implementation=attention)
        theirs.num_attention_heads = config.num_attention_heads
        with torch.device("meta"):
            self.model = LlamaForCausalLM(theirs)
        # The weights are used where they are; the only tensors made here are the rotary frequencies.
        self.model.load_state_dict(weights, assign=True)
        self.model.tie_weights()
        self.model.model.rotary_emb = LlamaRotaryEmbedding(config=theirs).to(embedding.device)
        self.model.eval()
        self.static = static
        self._new_cache = partial(StaticCache, max_cache_len=max_length) if static else DynamicCache
        self.cache: Any = None
        self.batch = 0

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        """[B, T] tokens that start at `position`, which must be where the cache ends → logits [B, V]."""
        if self.cache is None or tokens.shape[0] != self.batch:
            # phase: cache
            self.batch = tokens.shape[0]
            self.cache = self._new_cache(config=self.model.config)
        # phase: enter
        out = self.model(input_ids=tokens, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1]  # phase: other

    def reset(self) -> None:
        """Forget the sequence; the static cache keeps its buffers."""
        if self.static and self.cache is not None:
            self.cache.reset()  # phase: cache
        else:
            self.cache = None  # phase: cache


build = LibraryLlama
