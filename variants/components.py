"""Single parts of our variants, to be measured alone: the mask and RoPE, as a preset's settings say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .config import LlamaConfig
from .modular.masks import MAKERS, POLICIES, apply_mask
from .modular.rope import RopeTables, Rotary
from .settings import Settings

NAMES = ("mask-create", "mask-apply", "mask-create-apply", "mask-get", "rope")


@dataclass(frozen=True)
class Component:
    """One part with its inputs: `run` does the timed work, `expected` is what it must give (float64 arithmetic)."""

    run: Callable[[], Tensor]
    expected: Callable[[], Tensor]


def _expected_rope(config: LlamaConfig, x: Tensor, interleaved: bool) -> Tensor:
    """x [1, T, H, D] times e^(iφ), by complex numbers in float64: independent of every kernel."""
    half = config.head_dim // 2
    frequencies = config.rope_theta ** (-torch.arange(half, dtype=torch.float64) * 2 / config.head_dim)
    turns = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), frequencies)[:, None]  # [T, 1, D/2]
    wide = x.double()
    a, b = (wide[..., 0::2], wide[..., 1::2]) if interleaved else (wide[..., :half], wide[..., half:])
    turned = torch.complex(a, b) * torch.polar(torch.ones_like(turns), turns)
    parts = (turned.real, turned.imag)
    return torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)


def build(name: str, settings: Settings, config: LlamaConfig, *, tokens: int, seed: int) -> Component:
    """The part `name` at T = `tokens`, batch 1, float32, with seeded normal inputs.

    Shapes: scores [1, H, T, T], Q and K [1, T, H, D] ([1, H, T, D] for a bhtd boundary).

    Raises:
        ValueError: no part has that name, or RoPE scaling is asked for (the reference here has none).
    """
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.float32
    heads, head_dim = config.num_attention_heads, config.head_dim
    application = settings.mask_application
    if name == "rope":
        if config.rope_scaling is not None:
            raise ValueError("the RoPE component knows no RoPE scaling; use a geometry without it")
        rotary = Rotary(settings.rope, RopeTables(config, tokens, dtype), settings.boundary)
        q = torch.randn(1, tokens, heads, head_dim, generator=generator)
        k = torch.randn(1, tokens, heads, head_dim, generator=generator)
        expected_q = _expected_rope(config, q, settings.interleaved)
        if settings.boundary == "bhtd":
            q, k, expected_q = q.transpose(1, 2), k.transpose(1, 2), expected_q.transpose(1, 2)
        return Component(lambda: rotary(q, k, 0)[0], lambda: expected_q)

    masks = POLICIES[settings.mask](application, dtype)
    make = MAKERS[application]

    def forbidden() -> Tensor:
        return torch.ones(tokens, tokens, dtype=torch.bool).triu(1)

    def additive() -> Tensor:
        return torch.zeros(tokens, tokens, dtype=torch.float64).masked_fill(forbidden(), float("-inf"))

    def alone() -> Tensor:
        return forbidden() if application == "masked_fill" else additive()

    if name == "mask-create":
        return Component(lambda: make(tokens, tokens, dtype), alone)
    if name == "mask-get":
        # At T = 1 the model makes no mask at all; here the policy's own work is timed, so it is asked for one anyway.
        if settings.mask == "fresh":
            return Component(lambda: make(tokens, tokens, dtype), alone)
        if settings.mask not in ("per_layer", "per_model"):
            raise ValueError(f"mask-get compares creation with look-up; mask = {settings.mask!r} is neither")
        table = {(tokens, tokens): make(tokens, tokens, dtype)}
        return Component(lambda: table[tokens, tokens], alone)
    if name not in NAMES:
        raise ValueError(f"no component {name!r}; there are {', '.join(NAMES)}")

    scores = torch.randn(1, heads, tokens, tokens, generator=generator)

    def masked() -> Tensor:
        return scores.double().masked_fill(forbidden(), float("-inf"))

    if name == "mask-apply":
        ready = make(tokens, tokens, dtype)
        return Component(lambda: apply_mask(scores, ready, application), masked)

    def create_and_apply() -> Tensor:
        masks.begin(tokens, tokens)
        mask = masks.get(tokens, tokens)
        return scores if mask is None else apply_mask(scores, mask, application)

    return Component(create_and_apply, masked)
