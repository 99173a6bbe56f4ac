"""Sixteen tokens after a prompt by transformers, with a cache that grows and with one that is as long as may be."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

NEW = 16


@cache
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2000, hidden_size=288, intermediate_size=768, num_hidden_layers=6, num_attention_heads=6,
        num_key_value_heads=6, max_position_embeddings=2048,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def prompt(seed: int) -> Tensor:
    return torch.randint(2000, (1, 32), generator=torch.Generator().manual_seed(seed))


def generated(tokens: Tensor, held: object) -> list[int]:
    with torch.inference_mode():
        found = []
        new = tokens
        for _ in range(NEW):
            logits = model()(new, past_key_values=held, use_cache=True).logits
            new = logits[:, -1:].argmax(-1)
            found.append(int(new))
        return found


def growing(tokens: Tensor) -> list[int]:
    return generated(tokens, DynamicCache(config=model().config))


def static_64(tokens: Tensor) -> list[int]:
    return generated(tokens, StaticCache(config=model().config, max_cache_len=64))


def static_2048(tokens: Tensor) -> list[int]:
    return generated(tokens, StaticCache(config=model().config, max_cache_len=2048))
