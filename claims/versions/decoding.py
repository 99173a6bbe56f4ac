"""A few tokens after a prompt by transformers' Llama, of whichever version is installed. Any version from 4.34 on."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import torch

NEW = 8


@cache
def model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2000, hidden_size=288, intermediate_size=768, num_hidden_layers=6, num_attention_heads=6
    )
    return LlamaForCausalLM(config).eval()


def prompt(seed: int) -> Any:
    """64 tokens; by Python's own random numbers, which are the same in every version."""
    draw = random.Random(seed)
    return torch.tensor([[draw.randrange(2000) for _ in range(64)]])


def generated(tokens: Any) -> Any:
    with torch.no_grad():
        out = model()(tokens, use_cache=True)
        found = []
        for _ in range(NEW):
            new = out.logits[:, -1:].argmax(-1)
            found.append(int(new))
            out = model()(new, past_key_values=out.past_key_values, use_cache=True)
        return found
