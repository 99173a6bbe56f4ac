"""A Llama written a second time, for judging others: all positions at once, in float32, on the CPU, nothing cached.

It shares no code with any variant, and tests hold it to the library's model. `examiner` asks it in a process of its
own for what timed calls should have given, and `workbench check` what a Llama with a mistake would give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from llama_workbench.variants import LlamaConfig

from ..worker.correctness import rounded


def logits(
    config: LlamaConfig, weights: Mapping[str, Tensor], tokens: Tensor, *, first: int, rounding: str = ""
) -> Tensor:
    """Tokens [B, T] from the start of a sequence → float32 logits [B, T - first, V] of position `first` and all after.
    `weights` carry Hugging Face names and may be of any floating type. `rounding`: as a cache would round keys and
    values, see `rounded`."""
    x = through_layers(config, weights, tokens, torch.arange(tokens.shape[1]), rounding=rounding)
    x = normed(x[:, first:], weights["model.norm.weight"].float(), config.rms_norm_eps)
    return x @ weights["lm_head.weight"].float().T


def through_layers(
    config: LlamaConfig,
    weights: Mapping[str, Tensor],
    tokens: Tensor,
    positions: Tensor,
    *,
    seen: Tensor | None = None,
    rounding: str = "",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The same as far as the last norm, [B, T, hidden], computed in `dtype`. positions: of the tokens, [T]. seen: which
    tokens [T] each of them [T] attends to, where that is not those up to itself."""

    def weight(name: str) -> Tensor:
        return weights[name].to(dtype)

    heads, kv_heads, size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    batch, length = tokens.shape
    turn = _turns(config, positions).to(dtype.to_complex())
    x = F.embedding(tokens, weights["model.embed_tokens.weight"]).to(dtype)
    for i in range(config.num_hidden_layers):
        part = f"model.layers.{i}."
        y = normed(x, weight(f"{part}input_layernorm.weight"), config.rms_norm_eps)
        q, k, v = (
            (y @ weight(f"{part}self_attn.{name}_proj.weight").T).view(batch, length, count, size).transpose(1, 2)
            for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        q, k, v = _turned(q, turn), rounded(_turned(k, turn), rounding), rounded(v, rounding)
        way = {"is_causal": seen is None, "enable_gqa": heads != kv_heads}
        y = F.scaled_dot_product_attention(q, k, v, seen, **way)
        x = x + y.transpose(1, 2).flatten(2) @ weight(f"{part}self_attn.o_proj.weight").T
        y = normed(x, weight(f"{part}post_attention_layernorm.weight"), config.rms_norm_eps)
        gate, up = (y @ weight(f"{part}mlp.{name}_proj.weight").T for name in ("gate", "up"))
        x = x + (F.silu(gate) * up) @ weight(f"{part}mlp.down_proj.weight").T
    return x


def normed(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


def _turns(config: LlamaConfig, positions: Tensor) -> Tensor:
    """exp(i · angle) of each position and pair of values, [T, D/2], complex."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    frequencies = config.rope_theta**-exponents
    scaling = config.rope_scaling
    if scaling is not None:  # Llama 3: slow turns are slowed down, fast ones kept, those between blended
        turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
        kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        kept = kept.clamp(0, 1)
        frequencies = frequencies * (kept + (1 - kept) / scaling.factor)
    angles = torch.outer(positions.double(), frequencies)
    return torch.polar(torch.ones_like(angles), angles)


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    """x [B, H, T, D] with values i and i + D/2 as one complex number, turned by its position."""
    real, imaginary = x.chunk(2, dim=-1)
    y = torch.complex(real, imaginary) * turn
    return torch.cat((y.real, y.imag), dim=-1)
