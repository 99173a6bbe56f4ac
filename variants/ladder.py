"""From the layered worker to the best eager code, one step at a time, each a whole model: what is left to gain, and by
which steps. The operations before the first step are team006_after's, those after the last one are `fast`'s.

Every step keeps those before it (`Steps`). Shapes: B batch, T new tokens, S tokens so far (T included), H query heads,
G key/value heads, D head size, E hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .config import LlamaConfig
from .modular.linear import interleave_rows
from .modular.masks import additive_mask
from .modular.rope import angle_tables, rope_parts, rotate_complex, rotate_half


@dataclass(frozen=True)
class Steps:
    """What has been changed. Without any, the layered worker's operations, written as one function: no Module calls.

    heads_first: [B, H, T, D] once before RoPE, which turns halves: no copies there and back. one_kernel: SDPA for
    scores, mask, softmax and output; no mask is made from position 0 on. fused: Q, K and V are one product, gate and up
    another, and RoPE turns Q and K together. transposed: weights [in, out], products of matrices that add the residual.
    last_only: the last layer computes what the last position needs.

    Off the ladder, to be compared with `one_kernel`: explicit_mask hands SDPA a mask from a dict where it could be told
    that attention is causal; repeated repeats keys and values for grouped queries where SDPA can group them itself.
    """

    heads_first: bool = False
    one_kernel: bool = False
    fused: bool = False
    transposed: bool = False
    last_only: bool = False
    explicit_mask: bool = False
    repeated: bool = False


class Layer(NamedTuple):
    """Weights of one layer, [out, in] or transposed."""

    attention_norm: Tensor
    inputs: tuple[Tensor, ...]  # Q, K and V, or the three as one
    o: Tensor
    mlp_norm: Tensor
    gate_up: tuple[Tensor, ...]  # two, or one
    down: Tensor


class LadderLlama:
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one."""

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Tensor], max_length: int, steps: Steps) -> None:
        self.config, self.max_length, self.steps = config, max_length, steps
        self.layers = [_layer(config, weights, steps, i) for i in range(config.num_hidden_layers)]
        self.embedding, self.norm = weights["model.embed_tokens.weight"], weights["model.norm.weight"]
        head = weights["lm_head.weight"]
        self.head = head.t().contiguous() if steps.transposed else head
        self.tables = _tables(config, max_length, self.embedding, steps)
        self.masks: list[dict[tuple[int, int], Tensor]] = [{} for _ in self.layers]
        self.kvs: list[tuple[Tensor, Tensor]] = []

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        c, s = self.config, self.steps
        batch, length = tokens.shape
        end = position + length  # phase: other
        eps = c.rms_norm_eps
        self._make_room(batch)  # phase: cache
        x = F.embedding(tokens, self.embedding)  # [B, T, E]  # phase: embedding
        if s.transposed:
            x = x.flatten(0, 1)  # [B·T, E]  # phase: embedding
        shape = (x.shape[-1],)  # phase: other
        rows = self._rows(position, end) if s.fused else []  # phase: rope
        causal, mask = s.one_kernel and length > 1 and position == 0 and not s.explicit_mask, None
        if s.explicit_mask:
            mask = self._mask(0, length, end, x)  # phase: mask_create
        elif s.one_kernel and length > 1 and not causal:
            # phase: mask_create
            mask = torch.ones(length, end, dtype=torch.bool, device=x.device).tril_(position)  # True = seen
        for i, (layer, (k_all, v_all)) in enumerate(zip(self.layers, self.kvs, strict=True)):
            y = F.rms_norm(x, shape, layer.attention_norm, eps)  # phase: norm
            q, k, v = self._heads(y, layer, rows, position)  # phase: enter
            # phase: cache
            k_all[:, :, position:end] = k
            v_all[:, :, position:end] = v
            k, v = k_all[:, :, :end], v_all[:, :, :end]  # [B, G, S, D]
            if s.last_only and i == len(self.layers) - 1 and length > 1:
                x, q, mask, causal = x[length - 1 :: length], q[:, :, -1:], None, False  # phase: attention_fused
            if s.one_kernel:
                # phase: attention_fused
                grouped = c.num_attention_heads != c.num_key_value_heads
                if s.repeated and grouped:
                    k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for each in (k, v))
                y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=grouped)
            else:
                y = self._attended(q, k, v, i)  # phase: enter
            x = self._with_attention(x, y, layer)  # phase: enter
            y = F.rms_norm(x, shape, layer.mlp_norm, eps)  # phase: norm
            x = self._with_mlp(x, y, layer)  # phase: enter
        if not s.transposed:
            # phase: other; linear: lm_head; rms_norm: final_norm
            return F.linear(F.rms_norm(x, shape, self.norm, eps)[:, -1], self.head)
        if x.shape[0] > batch:
            x = x[length - 1 :: length]  # [B, E]  # phase: other
        # phase: other; @: lm_head; rms_norm: final_norm
        return F.rms_norm(x, shape, self.norm, eps) @ self.head

    def reset(self) -> None:
        """Nothing to forget: positions beyond the next call's are never read."""

    def _make_room(self, batch: int) -> None:
        if not self.kvs or self.kvs[0][0].shape[0] != batch:
            # phase: cache
            size = (batch, self.config.num_key_value_heads, self.max_length, self.config.head_dim)
            self.kvs = [(self.embedding.new_empty(size), self.embedding.new_empty(size)) for _ in self.layers]

    def _rows(self, position: int, end: int) -> list[Tensor]:
        return [table[position:end] for table in self.tables]  # phase: rope

    def _heads(self, y: Tensor, layer: Layer, rows: list[Tensor], position: int) -> tuple[Tensor, Tensor, Tensor]:
        """y → q [B, H, T, D], k and v [B, G, T, D], q and k turned by their positions. rows: of the tables, where the
        layers share them."""
        # phase: qkv
        c, s = self.config, self.steps
        heads, kv_heads, head_dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        if s.fused:
            [weight] = layer.inputs
            y = y @ weight if s.transposed else F.linear(y, weight)
            length = rows[0].shape[0]
            y = y.view(y.numel() // y.shape[-1] // length, length, heads + 2 * kv_heads, head_dim)
            # phase: rope
            cos, sin = rows
            qk = y[:, :, : heads + kv_heads]
            qk = qk * cos + qk.roll(head_dim // 2, -1) * sin
            q, k, v = qk[:, :, :heads], qk[:, :, heads:], y[:, :, heads + kv_heads :]
            return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        # phase: qkv
        q, k, v = (F.linear(y, weight).unflatten(-1, (-1, head_dim)) for weight in layer.inputs)  # [B, T, H, D]
        # phase: rope
        if s.heads_first:
            rows = self._rows(position, position + q.shape[1])
            q, k = rotate_half(q.transpose(1, 2), *rows), rotate_half(k.transpose(1, 2), *rows)
        else:
            q, k = q.transpose(1, 2).contiguous(), k.transpose(1, 2).contiguous()  # [B, H, T, D]
            rows = self._rows(position, position + q.shape[2])
            q, k = rotate_complex(q, *rows), rotate_complex(k, *rows)
            q, k = q.transpose(1, 2).contiguous(), k.transpose(1, 2).contiguous()  # [B, T, H, D]
            q, k = q.transpose(1, 2), k.transpose(1, 2)
        return q, k, v.transpose(1, 2)

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
        """[B, H, T, D], by separate operations and a mask from the layer's dict."""
        mask = self._mask(layer, q.shape[2], k.shape[2], q)  # phase: mask_create
        if k.shape[1] != q.shape[1]:
            k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)  # [B, H, S, D]  # phase: scores
            v = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)  # phase: output
        scores = torch.matmul(q, k.transpose(2, 3)) * self.config.head_dim**-0.5  # [B, H, T, S]  # phase: scores
        if mask is not None:
            scores = scores + mask  # phase: mask_apply
        shifted = torch.exp(scores - scores.amax(-1, keepdim=True))  # phase: softmax
        return torch.matmul(shifted / shifted.sum(-1, keepdim=True), v)  # phase: output; /: softmax

    def _mask(self, layer: int, length: int, end: int, like: Tensor) -> Tensor | None:
        """[T, S] from a layer's dict; None for one query row, which sees everything before it."""
        # phase: mask_create
        mask = self.masks[layer].get((length, end))
        if mask is None and length > 1:
            mask = self.masks[layer][length, end] = additive_mask(length, end, like.dtype, like.device)
        return mask

    def _with_attention(self, x: Tensor, y: Tensor, layer: Layer) -> Tensor:
        """x plus the output projection of y [B, H, T, D]."""
        # phase: o_proj
        y = y.transpose(1, 2)  # [B, T, H, D]
        if self.steps.transposed:
            return torch.addmm(x, y.reshape(x.shape[0], layer.o.shape[0]), layer.o)
        y = F.linear(y.flatten(2), layer.o)
        return x + y  # phase: other

    def _with_mlp(self, x: Tensor, y: Tensor, layer: Layer) -> Tensor:
        """x plus the feed-forward part of y."""
        # phase: mlp
        s = self.steps
        if s.fused:
            [weight] = layer.gate_up
            gate, up = (y @ weight if s.transposed else F.linear(y, weight)).chunk(2, dim=-1)
            y = F.silu(gate) * up
        else:
            gate, up = layer.gate_up
            y = F.silu(F.linear(y, gate)) * F.linear(y, up)
        if s.transposed:
            return torch.addmm(x, y, layer.down)
        return x + F.linear(y, layer.down)  # phase: other; linear: mlp


def _tables(config: LlamaConfig, length: int, like: Tensor, steps: Steps) -> tuple[Tensor, ...]:
    """What RoPE reads, by position: one complex table, or cos and sin of D/2 columns, or of D as [length, 1, D]."""
    if not steps.fused:
        kernel = "rotate_half" if steps.heads_first else "complex"
        return rope_parts(kernel, config, length, like.dtype, like.device)
    cos, sin = (
        torch.cat((table, table), dim=-1)[:, None].to(like.device, like.dtype)
        for table in angle_tables(config, length, torch.float32)
    )
    sin[..., : config.head_dim // 2].neg_()
    return cos, sin


def _layer(config: LlamaConfig, weights: Mapping[str, Tensor], steps: Steps, i: int) -> Layer:
    def given(name: str) -> Tensor:
        weight = weights[f"model.layers.{i}.{name}_proj.weight"]
        if not steps.heads_first and name in ("self_attn.q", "self_attn.k"):
            return interleave_rows(weight, config.head_dim)
        return weight

    def together(*names: str) -> tuple[Tensor, ...]:
        parts = tuple(map(given, names))
        if steps.fused:
            parts = (torch.cat(parts),) if len(parts) > 1 else parts
        return tuple(part.t().contiguous() for part in parts) if steps.transposed else parts

    [o], [down] = together("self_attn.o"), together("mlp.down")
    return Layer(
        weights[f"model.layers.{i}.input_layernorm.weight"],
        together("self_attn.q", "self_attn.k", "self_attn.v"),
        o,
        weights[f"model.layers.{i}.post_attention_layernorm.weight"],
        together("mlp.gate", "mlp.up"),
        down,
    )


def build(
    config: LlamaConfig,
    weights: Mapping[str, Tensor],
    *,
    max_length: int,
    heads_first: bool = False,
    one_kernel: bool = False,
    fused: bool = False,
    transposed: bool = False,
    last_only: bool = False,
    explicit_mask: bool = False,
    repeated: bool = False,
) -> LadderLlama:
    """A model over `weights` (Hugging Face names) with these steps taken; see `Steps`."""
    steps = Steps(heads_first, one_kernel, fused, transposed, last_only, explicit_mask, repeated)
    return LadderLlama(config, weights, max_length, steps)
