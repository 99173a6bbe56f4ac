"""A Llama in plain PyTorch, to change as you like.

Its one public function builds the model. The workbench finds it as FILE.py:build_mine and calls the variant by the
function's name. After each change:

    workbench check FILE.py                                               are the logits right?
    pytest --benchmark --add-variant FILE.py:build_mine --compare fast build_mine --workloads prefill-15m-t128

A variant is timed only while its logits are right, so break what you like.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from llama_workbench.variants import LlamaConfig


def build_mine(config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int) -> Mine:
    """A Llama in plain PyTorch (this first line is what lists show).

    config: the geometry (hidden_size, num_attention_heads, rope_theta, ...). weights: by their Hugging Face names;
    whoever needs them in another form makes copies here, for they belong to all. max_length: no sequence gets longer.
    """
    return Mine(config, weights, max_length)


class Mine:
    """What the workbench calls: `reset` before each sequence, then `forward` for one piece of it after the other."""

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Tensor], max_length: int) -> None:
        self.config = config
        self.weights = weights
        self.max_length = max_length
        self.embedding = weights["model.embed_tokens.weight"]
        self.cos, self.sin = rope_tables(config, max_length, self.embedding)
        self.cache = torch.empty(0)  # [layers, 2, B, KV heads, max_length, head_dim]

    def reset(self) -> None:
        """Forget the sequence. Here: nothing to do, the next one overwrites the cache from its start."""

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        """tokens [B, T], of which the first stands at `position` of the sequence → logits [B, V] of the last one."""
        config, weights = self.config, self.weights
        batch, length = tokens.shape
        end = position + length
        if self.cache.ndim == 1 or self.cache.shape[2] != batch:
            shape = (config.num_hidden_layers, 2, batch, config.num_key_value_heads, self.max_length, config.head_dim)
            self.cache = self.embedding.new_zeros(shape)
        cos, sin = self.cos[position:end], self.sin[position:end]
        # True: may be seen. A prompt from the start is causal, and a single token sees all: neither needs a mask.
        mask = None
        if position and length > 1:
            mask = torch.ones(length, end, dtype=torch.bool, device=tokens.device).tril(position)

        x = F.embedding(tokens, self.embedding)  # [B, T, hidden]
        for layer in range(config.num_hidden_layers):
            part = f"model.layers.{layer}"
            y = rms_norm(x, weights[f"{part}.input_layernorm.weight"], config.rms_norm_eps)
            q, k, v = (  # [B, heads, T, head_dim]
                F.linear(y, weights[f"{part}.self_attn.{name}_proj.weight"])
                .view(batch, length, -1, config.head_dim)
                .transpose(1, 2)
                for name in "qkv"
            )
            keys, values = self.cache[layer]
            keys[:, :, position:end] = turned(k, cos, sin)
            values[:, :, position:end] = v
            y = F.scaled_dot_product_attention(
                turned(q, cos, sin),
                keys[:, :, :end],
                values[:, :, :end],
                attn_mask=mask,
                is_causal=mask is None and length > 1,
                enable_gqa=config.num_key_value_heads != config.num_attention_heads,
            )
            x = x + F.linear(y.transpose(1, 2).flatten(2), weights[f"{part}.self_attn.o_proj.weight"])
            y = rms_norm(x, weights[f"{part}.post_attention_layernorm.weight"], config.rms_norm_eps)
            gate = F.silu(F.linear(y, weights[f"{part}.mlp.gate_proj.weight"]))
            up = F.linear(y, weights[f"{part}.mlp.up_proj.weight"])
            x = x + F.linear(gate * up, weights[f"{part}.mlp.down_proj.weight"])
        last = rms_norm(x[:, -1], weights["model.norm.weight"], config.rms_norm_eps)
        return F.linear(last, weights["lm_head.weight"])


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x [..., hidden] at a root mean square of 1, times `weight` [hidden]."""
    return F.rms_norm(x, weight.shape, weight, epsilon)


def rope_tables(config: LlamaConfig, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, head_dim / 2] of each position, of the type and on the device of `like`."""
    frequencies = config.rope_theta ** -(torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim)
    if (scaling := config.rope_scaling) is not None:  # Llama 3: slow turns are slowed down, fast ones kept
        turns = frequencies * scaling.original_max_position_embeddings / (2 * math.pi)
        kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        frequencies = torch.lerp(frequencies / scaling.factor, frequencies, kept.clamp(0, 1))
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
    return angles.cos().to(like), angles.sin().to(like)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, heads, T, head_dim] with each pair of values i and i + head_dim / 2 turned by its position's angle."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
