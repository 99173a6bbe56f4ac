"""A Llama with one mistake at a time, of those that people make when they write one.

Where a variant's logits are wrong, they are compared with these. If they agree on every call, the mistake has a name.
It shares no code with the variants or the examiner's reference. Nothing is timed here, and nothing passes by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from llama_workbench.variants import LlamaConfig

MISTAKES: Mapping[str, str] = {
    "neighbours": "RoPE turns neighbouring values (2i and 2i + 1); weights with Hugging Face names need halves "
    "(i and i + head_dim / 2)",
    "backwards": "RoPE turns the other way round: the sign of the sine is wrong",
    "no rope": "RoPE is missing",
    "theta": "RoPE's base is always 10,000; config.rope_theta is not used",
    "scaling": "config.rope_scaling (Llama 3) is not used",
    "epsilon 1e-5": "the norms' epsilon is always 1e-5; config.rms_norm_eps is not used",
    "epsilon 1e-6": "the norms' epsilon is always 1e-6; config.rms_norm_eps is not used",
    "no epsilon": "the norms have no epsilon, or a tiny one such as torch's own; config.rms_norm_eps is not used",
    "restart": "each call's positions begin at 0; the argument `position` is not used",
    "keys restart": "RoPE turns the keys of each call from position 0 on; the argument `position` is not used for them",
    "keys at start": "RoPE turns all keys of a call as its first; each has a position of its own",
    "keys unturned": "RoPE does not turn keys, only queries",
    "keys again": "RoPE turns the keys in the cache once more at each call",
    "queries unturned": "RoPE does not turn queries, only keys",
    "forgets": "a call sees its own tokens only: keys and values of earlier calls are not used",
    "no mask": "there is no causal mask: tokens see those that come after them",
    "mask without past": "the causal mask of a later call does not count what is in the cache already (it is aligned "
    "at the upper left, as `is_causal` is)",
    "mask at decode": "the causal mask is aligned at the upper left at decode too, as `is_causal` is: one token sees "
    "the first key alone",
    "no mask later": "later chunks of a prompt have no causal mask: their tokens see those that come after them",
    "chunks apart": "the mask of later chunks hides all before them: their tokens see their own chunk's only",
    "mask one late": "the causal mask is one place too far: each token sees the one after it",
    "heads in turns": "key and value heads are repeated in turns (0, 1, 0, 1); each belongs to queries side by side "
    "(0, 0, 1, 1)",
    "unscaled": "scores are not divided by the square root of head_dim",
    "swapped": "SiLU is applied to up_proj; it belongs to gate_proj",
    "gelu": "the feed-forward part has GELU; Llama has SiLU",
    "mean": "the norms take the mean away (LayerNorm); Llama has RMSNorm",
    "no final norm": "the last norm (model.norm) is missing",
    "first": "the logits are those of a call's first token; they should be those of its last",
}
"""Name → what it is, for whoever made it."""


def logits_with(
    mistake: str, config: LlamaConfig, weights: Mapping[str, Tensor], steps: Sequence[tuple[Tensor, int]]
) -> list[Tensor]:
    """Logits [B, V] of each call of a sequence, (tokens [B, T], position) each; "" for a Llama without mistake."""
    past: dict[int, tuple[Tensor, Tensor]] = {}
    with torch.inference_mode():
        return [_call(mistake, config, weights, tokens, position, past) for tokens, position in steps]


def _call(
    mistake: str,
    config: LlamaConfig,
    weights: Mapping[str, Tensor],
    tokens: Tensor,
    position: int,
    past: dict[int, tuple[Tensor, Tensor]],
) -> Tensor:
    (batch, length), size = tokens.shape, config.head_dim
    x = F.embedding(tokens, weights["model.embed_tokens.weight"])
    of_queries, of_keys = (
        _angles(mistake, config, places).to(x.dtype) for places in _positions(mistake, position, length)
    )
    for layer in range(config.num_hidden_layers):
        part = f"model.layers.{layer}"
        y = _norm(mistake, x, weights[f"{part}.input_layernorm.weight"], config)
        q, k, v = (
            F.linear(y, weights[f"{part}.self_attn.{name}_proj.weight"]).view(batch, length, -1, size).transpose(1, 2)
            for name in "qkv"
        )
        q, k = _turned(mistake, q, of_queries), _turned(mistake, k, of_keys)
        if layer in past and mistake != "forgets":
            k, v = (torch.cat(both, dim=2) for both in zip(past[layer], (k, v), strict=True))
        if mistake == "keys again" and position:
            before = _angles(mistake, config, torch.arange(position)).to(x.dtype)
            k = torch.cat((_turned(mistake, k[:, :, :position], before), k[:, :, position:]), dim=2)
        past[layer] = k, v
        y = _attention(mistake, q, k, v).transpose(1, 2).flatten(2)
        x = x + F.linear(y, weights[f"{part}.self_attn.o_proj.weight"])
        y = _norm(mistake, x, weights[f"{part}.post_attention_layernorm.weight"], config)
        gate, up = (F.linear(y, weights[f"{part}.mlp.{name}_proj.weight"]) for name in ("gate", "up"))
        if mistake == "swapped":
            gate, up = up, gate
        x = x + F.linear(
            (F.gelu(gate) if mistake == "gelu" else F.silu(gate)) * up, weights[f"{part}.mlp.down_proj.weight"]
        )
    x = x[:, 0] if mistake == "first" else x[:, -1]
    if mistake != "no final norm":
        x = _norm(mistake, x, weights["model.norm.weight"], config)
    return F.linear(x, weights["lm_head.weight"])


def _norm(mistake: str, x: Tensor, weight: Tensor, config: LlamaConfig) -> Tensor:
    if mistake == "mean":
        x = x - x.mean(-1, keepdim=True)
    epsilon = {"epsilon 1e-5": 1e-5, "epsilon 1e-6": 1e-6, "no epsilon": 0.0}.get(mistake, config.rms_norm_eps)
    return weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon)


def _positions(mistake: str, position: int, length: int) -> tuple[Tensor, Tensor]:
    """Where the queries and the keys of a call are taken to stand, [T] each."""
    right = torch.arange(position, position + length)
    nowhere, restarted, at_start = torch.zeros_like(right), right - position, torch.full_like(right, position)
    return {
        "no rope": (nowhere, nowhere),
        "restart": (restarted, restarted),
        "keys restart": (right, restarted),
        "keys at start": (right, at_start),
        "keys unturned": (right, nowhere),
        "queries unturned": (nowhere, right),
    }.get(mistake, (right, right))


def _angles(mistake: str, config: LlamaConfig, positions: Tensor) -> Tensor:
    """The angle of each position and pair of values, [T, D / 2]."""
    theta = 10_000.0 if mistake == "theta" else config.rope_theta
    frequencies = theta ** -(torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim)
    scaling = config.rope_scaling
    if scaling is not None and mistake != "scaling":
        turns = frequencies * scaling.original_max_position_embeddings / (2 * math.pi)
        kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        frequencies = torch.lerp(frequencies / scaling.factor, frequencies, kept.clamp(0, 1))
    return torch.outer(positions.double(), frequencies) * (-1.0 if mistake == "backwards" else 1.0)


def _turned(mistake: str, x: Tensor, angles: Tensor) -> Tensor:
    """x [B, H, T, D] with each pair of values turned by its angle."""
    cos, sin = angles.cos(), angles.sin()
    if mistake == "neighbours":
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def _attention(mistake: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q [B, H, T, D] on k and v [B, KV heads, positions, D]."""
    groups = q.shape[1] // k.shape[1]
    if mistake == "heads in turns":
        k, v = (each.repeat(1, groups, 1, 1) for each in (k, v))
    else:
        k, v = (each.repeat_interleave(groups, dim=1) for each in (k, v))
    scores = q @ k.transpose(-1, -2) * (1.0 if mistake == "unscaled" else q.shape[-1] ** -0.5)
    return scores.masked_fill(_hidden(mistake, *scores.shape[-2:]), -math.inf).softmax(-1) @ v


def _hidden(mistake: str, length: int, seen: int) -> Tensor:
    """Which keys each query may not see, [T, positions]."""
    before, places = seen - length, torch.ones(length, seen, dtype=torch.bool)
    if mistake == "no mask" or (mistake == "no mask later" and before):
        return ~places
    if mistake == "mask at decode" or (mistake == "mask without past" and length > 1):
        return places.triu(1)
    hidden = places.triu(before + 1 + (mistake == "mask one late"))
    if mistake == "chunks apart" and length > 1:
        hidden[:, :before] = True
    return hidden
