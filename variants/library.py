"""The library's own model: transformers' LlamaForCausalLM over the same weights ("use the library")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .config import LlamaConfig


def _hf_config(config: LlamaConfig, attention: str) -> Any:
    from transformers import LlamaConfig as HFConfig

    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_theta}
    if (s := config.rope_scaling) is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": s.factor,
            "low_freq_factor": s.low_freq_factor,
            "high_freq_factor": s.high_freq_factor,
            "original_max_position_embeddings": s.original_max_position_embeddings,
        }
    return HFConfig(  # type: ignore[call-arg]  # attn_implementation is an argument that its base class takes
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_position_embeddings,
        rms_norm_eps=config.rms_norm_eps,
        rope_parameters=rope,
        tie_word_embeddings=config.tie_word_embeddings,
        attn_implementation=attention,
    )


class LibraryLlama:
    """Adapts LlamaForCausalLM to the workbench's two methods; `logits_to_keep=1`, as its own `generate` does."""

    def __init__(
        self, config: LlamaConfig, weights: Mapping[str, Tensor], max_length: int, *, attention: str, static: bool
    ) -> None:
        from transformers import DynamicCache, LlamaForCausalLM, StaticCache
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        self.config = _hf_config(config, attention)
        embedding = weights["model.embed_tokens.weight"]
        with torch.device("meta"):
            self.model = LlamaForCausalLM(self.config)
        # The weights are used where they lie; the only tensors made here are the rotary frequencies.
        state = {name: tensor for name, tensor in weights.items() if name != "lm_head.weight"}
        if not config.tie_word_embeddings:
            state["lm_head.weight"] = weights["lm_head.weight"]
        missing, unexpected = self.model.load_state_dict(state, strict=False, assign=True)
        if config.tie_word_embeddings:
            self.model.tie_weights()
            missing = [name for name in missing if name != "lm_head.weight"]
        if missing or unexpected:
            raise ValueError(f"weights do not fit LlamaForCausalLM: missing {missing}, unexpected {unexpected}")
        self.model.model.rotary_emb = LlamaRotaryEmbedding(config=self.config).to(embedding.device)
        self.model.eval()
        self.max_length = max_length
        self.static = static
        self._static_cache, self._dynamic_cache = StaticCache, DynamicCache
        self.cache: Any = None
        self.batch = 0

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        """[B, T] tokens that start at `position`, which must be where the cache ends → logits [B, V]."""
        if self.cache is None or tokens.shape[0] != self.batch:
            # phase: cache
            self.batch = tokens.shape[0]
            self.cache = (
                self._static_cache(config=self.config, max_cache_len=self.max_length)
                if self.static
                else self._dynamic_cache(config=self.config)
            )
        # phase: enter
        out = self.model(input_ids=tokens, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1]  # phase: other

    def reset(self) -> None:
        """Forget the sequence; the static cache keeps its buffers."""
        if self.static and self.cache is not None:
            self.cache.reset()  # phase: cache
        else:
            self.cache = None  # phase: cache


def build(
    config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int, attention: str, static: bool = False
) -> LibraryLlama:
    """`attention` is transformers' own name of an implementation: "eager" or "sdpa"."""
    return LibraryLlama(config, weights, max_length, attention=attention, static=static)
