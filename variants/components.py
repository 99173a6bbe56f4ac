"""Single parts of our variants, to be measured alone, as a preset's settings say.

They are what the dispute measured, at its shapes (batch 1, 32 heads of 128, float32): the mask made, looked up,
applied, and made and applied together; RoPE of Q and K; the three projections; the scores; softmax and output, which
they never timed alone; attention after RoPE; and all of that which the worker had of a layer, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .config import LlamaConfig
from .modular.attention import ManualAttention, SdpaAttention
from .modular.linear import Linear
from .modular.masks import MAKERS, POLICIES, apply_mask
from .modular.rope import RopeTables, Rotary
from .settings import Settings

WORKER_LAYER = "worker-layer"
"""Projections, RoPE and attention: no norm, no output projection, no MLP, as those layers had none."""

ROPE_ATTENTION = "rope-attention"
"""The same after its projections."""

NAMES = (
    "mask-create", "mask-apply", "mask-create-apply", "mask-get", "rope", "qkv", "scores", "softmax-output",
    "attention", ROPE_ATTENTION, WORKER_LAYER,
)  # fmt: skip


def _as_it_is(out: Any) -> Tensor:
    return out


@dataclass(frozen=True)
class Component:
    """One part with its inputs: `run` does the timed work, `expected` is what it must give (float64 arithmetic).

    `read` makes a tensor of what `run` gives, untimed."""

    run: Callable[[], Any]
    expected: Callable[[], Tensor]
    read: Callable[[Any], Tensor] = _as_it_is


def heads_first(x: Tensor) -> Tensor:
    """[1, T, H, D] as [1, H, T, D] of its own, as the worker copied it."""
    return x.transpose(1, 2).contiguous()


@dataclass(frozen=True)
class Inputs:
    """Seeded inputs at T tokens, and what each part must make of them: the same for ours and for an engine's.

    Shapes: q, k, v [1, T, H, D], scores [1, H, T, T], x [1, T, E], all normal. Weights of the projections are [in, out]
    and uniform: every process draws them for each side, which takes half as long as normal ones."""

    config: LlamaConfig
    tokens: int
    seed: int
    device: str = "cpu"

    def _drawn(self, salt: int, *shape: int) -> Tensor:
        # Drawn on the CPU, so that every device gets the same numbers.
        return torch.randn(*shape, generator=torch.Generator().manual_seed(self.seed * 16 + salt)).to(self.device)

    def _heads(self, salt: int) -> Tensor:
        return self._drawn(salt, 1, self.tokens, self.config.num_attention_heads, self.config.head_dim)

    def q(self) -> Tensor:
        return self._heads(0)

    def k(self) -> Tensor:
        return self._heads(1)

    def v(self) -> Tensor:
        return self._heads(2)

    def scores(self) -> Tensor:
        return self._drawn(3, 1, self.config.num_attention_heads, self.tokens, self.tokens)

    def x(self) -> Tensor:
        return self._drawn(4, 1, self.tokens, self.config.hidden_size)

    def projections(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weights of the three projections, all to H heads, scaled so that a result is about 1."""
        c = self.config
        columns, reach = c.num_attention_heads * c.head_dim, (3 / c.hidden_size) ** 0.5
        generators = (torch.Generator().manual_seed(self.seed * 16 + salt) for salt in (5, 6, 7))
        q, k, v = (
            torch.empty(c.hidden_size, columns).uniform_(-reach, reach, generator=each).to(self.device)
            for each in generators
        )
        return q, k, v

    def forbidden(self) -> Tensor:
        """[T, T], True where a query may not see the key."""
        return torch.ones(self.tokens, self.tokens, dtype=torch.bool, device=self.device).triu(1)

    def additive(self) -> Tensor:
        """[T, T] float64: 0, or -inf where the query may not see the key."""
        seen = torch.zeros(self.tokens, self.tokens, dtype=torch.float64, device=self.device)
        return seen.masked_fill(self.forbidden(), float("-inf"))

    def masked(self) -> Tensor:
        """The scores with their forbidden places at -inf, float64."""
        return self.scores().double().masked_fill(self.forbidden(), float("-inf"))

    def rotated(self, interleaved: bool) -> Tensor:
        """q after RoPE, [1, T, H, D] float64."""
        return self._turned(self.q().double(), interleaved)

    def _turned(self, x: Tensor, interleaved: bool) -> Tensor:
        half = self.config.head_dim // 2
        # By complex numbers, x times e^(iφ): independent of every kernel.
        frequencies = self.config.rope_theta ** (-torch.arange(half, dtype=torch.float64) * 2 / self.config.head_dim)
        angles = torch.outer(torch.arange(self.tokens, dtype=torch.float64), frequencies)
        turns = angles[:, None].to(x.device)  # [T, 1, D/2]
        a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
        turned = torch.complex(a, b) * torch.polar(torch.ones_like(turns), turns)
        parts = (turned.real, turned.imag)
        return torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)

    def projected(self) -> Tensor:
        """The three projections of x beside each other, [1, T, 3 · H · D] float64."""
        return torch.cat([self.x().double() @ weight.double() for weight in self.projections()], -1)

    def scored(self) -> Tensor:
        """Q K^T over the root of D, [1, H, T, T] float64."""
        q, k = self.q().double().transpose(1, 2), self.k().double().transpose(1, 2)
        return q @ k.transpose(2, 3) * self.config.head_dim**-0.5

    def weighed(self) -> Tensor:
        """Softmax of the masked scores, times v, [1, T, H · D] float64."""
        return self._weighed(self.masked())

    def attended(self) -> Tensor:
        """Causal attention over q, k and v, [1, T, H · D] float64."""
        return self._weighed(self.scored() + self.additive())

    def layered(self, interleaved: bool) -> Tensor:
        """x projected, Q and K turned, causal attention over them, [1, T, H · D] float64."""
        return self._after(interleaved, *self.projected().unflatten(-1, (3, -1, self.config.head_dim)).unbind(2))

    def turned_and_attended(self, interleaved: bool) -> Tensor:
        """q and k turned, causal attention over them and v, [1, T, H · D] float64."""
        return self._after(interleaved, self.q().double(), self.k().double(), self.v().double())

    def _after(self, interleaved: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        turned = (self._turned(q, interleaved), self._turned(k, interleaved), v)
        q, k, v = (part.transpose(1, 2) for part in turned)
        scores = q @ k.transpose(2, 3) * self.config.head_dim**-0.5 + self.additive()
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    def _weighed(self, scores: Tensor) -> Tensor:
        return (scores.softmax(-1) @ self.v().double().transpose(1, 2)).transpose(1, 2).flatten(2)


def build(
    name: str, settings: Settings, config: LlamaConfig, *, tokens: int, seed: int, device: str = "cpu"
) -> Component:
    """The part `name` at T = `tokens`, batch 1, float32, on `device`, with seeded inputs.

    Shapes as in `Inputs`; Q and K of RoPE are [1, T, H, D] for a bthd boundary, else [1, H, T, D]. A mask policy that
    caches is warm from the first call on.

    Raises:
        ValueError: no part has that name, or RoPE scaling is asked for (the reference here has none)."""
    given = Inputs(config, tokens, seed, device)
    dtype, place = torch.float32, torch.device(device)
    application = settings.mask_application
    if name == "rope":
        rotary = _rotary(settings, given)
        q, k, expected_q = given.q(), given.k(), given.rotated(settings.interleaved)
        if settings.boundary != "bthd":
            q, k, expected_q = q.transpose(1, 2), k.transpose(1, 2), expected_q.transpose(1, 2)
        return Component(lambda: rotary(q, k, 0)[0], lambda: expected_q)
    if name == "qkv":
        x, projections = given.x(), [Linear(weight.t().contiguous()) for weight in given.projections()]
        return Component(lambda: [each(x) for each in projections], given.projected, lambda out: torch.cat(out, -1))
    if name == "scores":
        q, k, scale = given.q(), given.k(), config.head_dim**-0.5

        def score() -> Tensor:
            return torch.matmul(heads_first(q), heads_first(k).transpose(2, 3)) * scale

        return Component(score, given.scored)
    manual = ManualAttention(application, settings.softmax)
    if name == "softmax-output":
        masked, values = given.masked().to(dtype), given.v()

        def weigh() -> Tensor:
            return torch.matmul(manual.softmax(masked), heads_first(values)).transpose(1, 2).flatten(2)

        return Component(weigh, given.weighed)

    masks = POLICIES[settings.mask](application, dtype, place)
    make = MAKERS[application]

    def alone() -> Tensor:
        return given.forbidden() if application == "masked_fill" else given.additive()

    # At T = 1 a model makes no mask, or zeros; here the policy's own work is timed, so it is asked for one anyway.
    if name == "mask-create" or (name == "mask-get" and settings.mask == "fresh"):
        return Component(lambda: make(tokens, tokens, dtype, place), alone)
    if name == "mask-get":
        if settings.mask not in ("per_layer", "per_model"):
            raise ValueError(f"mask-get compares creation with look-up; mask = {settings.mask!r} is neither")
        table = {(tokens, tokens): make(tokens, tokens, dtype, place)}
        return Component(lambda: table[tokens, tokens], alone)
    attend = manual if settings.attention == "manual" else SdpaAttention()

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        masks.begin(tokens, tokens)
        mask = masks.get(tokens, tokens)
        out = attend(heads_first(q), heads_first(k), heads_first(v), mask, config.head_dim**-0.5)
        return out.transpose(1, 2).flatten(2)

    if name == "attention":
        q, k, v = given.q(), given.k(), given.v()
        return Component(lambda: attention(q, k, v), given.attended)
    if name in (ROPE_ATTENTION, WORKER_LAYER):
        return _worker_layer(name, settings, given, attention)
    if name not in NAMES:
        raise ValueError(f"no component {name!r}; there are {', '.join(NAMES)}")

    scores = given.scores()
    if name == "mask-apply":
        ready = make(tokens, tokens, dtype, place)
        return Component(lambda: apply_mask(scores, ready, application), given.masked)

    def create_and_apply() -> Tensor:
        masks.begin(tokens, tokens)
        mask = masks.get(tokens, tokens)
        return scores if mask is None else apply_mask(scores, mask, application)

    return Component(create_and_apply, given.masked)


def _rotary(settings: Settings, given: Inputs) -> Rotary:
    if given.config.rope_scaling is not None:
        raise ValueError("the RoPE component knows no RoPE scaling; use a geometry without it")
    tables = RopeTables(settings.rope, given.config, given.tokens, torch.float32, torch.device(given.device))
    return Rotary(settings.rope, tables, settings.boundary)


def _worker_layer(
    name: str, settings: Settings, given: Inputs, attention: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Component:
    """Three products with weights [in, out], as the worker kept them; RoPE in [B, T, H, D]; attention. Or what comes
    after the products alone."""
    rotary, head_dim = _rotary(replace(settings, boundary="bthd"), given), given.config.head_dim

    def turn_and_attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = rotary(q, k, 0)
        return attention(q, k, v)

    if name == ROPE_ATTENTION:
        drawn = given.q(), given.k(), given.v()
        return Component(lambda: turn_and_attend(*drawn), lambda: given.turned_and_attended(settings.interleaved))
    x, weights = given.x(), given.projections()

    def layer() -> Tensor:
        q, k, v = (torch.matmul(x, weight).unflatten(-1, (-1, head_dim)) for weight in weights)  # [1, T, H, D]
        return turn_and_attend(q, k, v)

    return Component(layer, lambda: given.layered(settings.interleaved))
