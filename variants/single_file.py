"""Llama in one file, read top-down: config → RoPE → masks → caches → layers → model → build.

The counterpart of `modular/`: the same operations in the same order (the op-trace gate checks it), with plain branches
where the layered code plugs in policies. It imports nothing from there. Shapes: B batch, T new tokens, S tokens so
far (T included), H query heads, G key/value heads, D head size, E hidden size, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import LlamaConfig
from .settings import Settings

# --- rotary position embedding -------------------------------------------------------------------------------------


def rope_tables(
    config: LlamaConfig, length: int, dtype: torch.dtype, device: torch.device, kernel: str
) -> tuple[Tensor, ...]:
    """cos and sin, or both as one complex table (float32 or float64), [length, D/2] each; computed in float32, with
    Llama-3 scaling where the checkpoint asks for it."""
    frequencies = 1.0 / (config.rope_theta ** (torch.arange(0, config.head_dim, 2).float() / config.head_dim))
    if (s := config.rope_scaling) is not None:
        turns = s.original_max_position_embeddings * frequencies / (2 * math.pi)  # over the original context
        smooth = ((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)).clamp(0, 1)
        frequencies = (1 - smooth) * frequencies / s.factor + smooth * frequencies
    angles = torch.outer(torch.arange(length).float(), frequencies)
    if kernel == "complex" and dtype != torch.float64:
        dtype = torch.float32
    cos, sin = angles.cos().to(device, dtype), angles.sin().to(device, dtype)
    return (torch.complex(cos, sin),) if kernel == "complex" else (cos, sin)


def rotate_complex(x: Tensor, turns: Tensor) -> Tensor:
    """x [B, H, T, D]: neighbours (2i, 2i + 1) turned by their position; turns [T, D/2]. 16-bit values in float32."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    turned = torch.view_as_complex(wide.unflatten(-1, (-1, 2))) * turns
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def rotate_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, H, T, D]: pairs (i, i + D/2) turned by their position; cos and sin [T, D/2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


# --- causal masks --------------------------------------------------------------------------------------------------


def make_mask(length: int, kv_length: int, dtype: torch.dtype, device: torch.device, application: str) -> Tensor:
    """[T, S]: what query t must not see (j > t + S - T) is -inf, or True for where."""
    if application == "masked_fill":
        return torch.ones((length, kv_length), dtype=torch.bool, device=device).triu_(kv_length - length + 1)
    return torch.full((length, kv_length), float("-inf"), dtype=dtype, device=device).triu_(kv_length - length + 1)


class Masks:
    """Where masks come from when caches are split: made anew on the host, with zeros at decode, or a dict by (T, S) and
    none at decode."""

    def __init__(self, policy: str, application: str, dtype: torch.dtype, device: torch.device) -> None:
        self.cached = policy == "per_model"
        self.application = application
        self.dtype = dtype
        self.nothing = torch.bool if application == "masked_fill" else dtype
        self.device = device
        self.host = torch.device("cpu")
        self.masks: dict[tuple[int, int], Tensor] = {}

    def get(self, length: int, kv_length: int) -> Tensor | None:
        if not self.cached:
            if length == 1:
                return torch.zeros(length, kv_length, dtype=self.nothing, device=self.device)
            return make_mask(length, kv_length, self.dtype, self.host, self.application).to(self.device)
        if length == 1:
            return None
        mask = self.masks.get((length, kv_length))
        if mask is None:
            mask = self.masks[length, kv_length] = make_mask(
                length, kv_length, self.dtype, self.device, self.application
            )
        return mask


# --- KV storage and the unified cache ------------------------------------------------------------------------------


class KV:
    """One layer's keys and values: a preallocated buffer seen through a view, or grown by concatenation."""

    def __init__(self, storage: str, max_length: int) -> None:
        self.preallocated = storage == "preallocated"
        self.max_length = max_length
        self.k: Tensor | None = None
        self.v: Tensor | None = None

    def append(self, k: Tensor, v: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """k, v [B, G, T, D] → all so far [B, G, S, D]."""
        if not self.preallocated:
            if self.k is None or self.v is None:
                self.k, self.v = k, v
            else:
                self.k = torch.cat((self.k, k), dim=2)
                self.v = torch.cat((self.v, v), dim=2)
            return self.k, self.v
        batch, heads, length, head_dim = k.shape
        if self.k is None or self.v is None or self.k.shape[0] != batch:
            self.k = torch.empty(batch, heads, self.max_length, head_dim, dtype=k.dtype, device=k.device)
            self.v = torch.empty_like(self.k)
        self.k.narrow(2, position, length).copy_(k)
        self.v.narrow(2, position, length).copy_(v)
        return self.k.narrow(2, 0, position + length), self.v.narrow(2, 0, position + length)

    def reset(self) -> None:
        if not self.preallocated:
            self.k = self.v = None


class Tables:
    """RoPE tables on their own, when caches are split."""

    def __init__(
        self, config: LlamaConfig, settings: Settings, max_length: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.parts = rope_tables(config, max_length, dtype, device, settings.rope)

    def rows(self, position: int, length: int) -> tuple[Tensor, ...]:
        """[T, D/2] each."""
        return tuple(part.narrow(0, position, length) for part in self.parts)


class Cache(Tables, Masks):
    """Everything under one owner, as Candle's `Cache`: KV of all layers, RoPE tables, masks."""

    def __init__(
        self, config: LlamaConfig, settings: Settings, max_length: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        Tables.__init__(self, config, settings, max_length, dtype, device)
        Masks.__init__(self, settings.mask, settings.mask_application, dtype, device)
        self.kvs = [KV(settings.kv, max_length) for _ in range(config.num_hidden_layers)]


# --- layers --------------------------------------------------------------------------------------------------------


class Linear(nn.Module):
    """y = x Wᵀ; the weight is used where it lies."""

    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class RMSNorm(nn.Module):
    """x / rms(x) · weight over the last dimension (arXiv 1910.07467)."""

    weight: Tensor

    def __init__(self, weight: Tensor, eps: float, kind: str) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.eps = eps
        self.fused = kind == "fused"
        self.shape = (weight.numel(),)

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            return F.rms_norm(x, self.shape, self.weight, self.eps)
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        inverse_rms = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * inverse_rms).to(x.dtype) * self.weight


class Rotary(nn.Module):
    """RoPE as a part of its own: Q and K [B, T, H, D], or [B, H, T, D] where heads come first; the same come back."""

    def __init__(self, settings: Settings, tables: Tables) -> None:
        super().__init__()
        self.tables = tables
        self.round_trip = settings.boundary == "bthd"
        self.rotate = rotate_complex if settings.rope == "complex" else rotate_half

    def forward(self, q: Tensor, k: Tensor, position: int) -> tuple[Tensor, Tensor]:
        if self.round_trip:
            q = q.transpose(1, 2).contiguous()  # [B, H, T, D]
            k = k.transpose(1, 2).contiguous()
        rows = self.tables.rows(position, q.shape[2])
        q = self.rotate(q, *rows)
        k = self.rotate(k, *rows)
        if self.round_trip:
            q = q.transpose(1, 2).contiguous()  # [B, T, H, D]
            k = k.transpose(1, 2).contiguous()
        return q, k


class Attention(nn.Module):
    """Causal self-attention with grouped queries; x [B, T, E] → [B, T, E]."""

    def __init__(
        self,
        config: LlamaConfig,
        settings: Settings,
        weights: Mapping[str, Tensor],
        prefix: str,
        rotary: Rotary,
        masks: Masks,
        kv: KV,
    ) -> None:
        super().__init__()
        self.q_proj = Linear(qk_rows(weights[f"{prefix}q_proj.weight"], config, settings))
        self.k_proj = Linear(qk_rows(weights[f"{prefix}k_proj.weight"], config, settings))
        self.v_proj = Linear(weights[f"{prefix}v_proj.weight"])
        self.o_proj = Linear(weights[f"{prefix}o_proj.weight"])
        self.rotary, self.rotate, self.tables = rotary, rotary.rotate, rotary.tables
        self.masks = masks
        self.kv = kv
        self.head_dim = config.head_dim
        self.scale = config.head_dim**-0.5
        self.transpose_first = settings.boundary != "bthd"
        self.rope_within = settings.boundary == "within"
        self.sdpa = settings.attention == "sdpa"
        self.fill = settings.mask_application == "masked_fill"
        self.fused_softmax = settings.softmax == "fused"

    def forward(self, x: Tensor, position: int) -> Tensor:
        # phase: qkv
        length = x.shape[1]
        q = self.q_proj(x).unflatten(-1, (-1, self.head_dim))  # [B, T, H, D]
        k = self.k_proj(x).unflatten(-1, (-1, self.head_dim))  # [B, T, G, D]
        v = self.v_proj(x).unflatten(-1, (-1, self.head_dim))
        # phase: rope
        if self.transpose_first:
            q, k = q.transpose(1, 2), k.transpose(1, 2)  # [B, H, T, D]
        if self.rope_within:
            rows = self.tables.rows(position, length)
            q, k = self.rotate(q, *rows), self.rotate(k, *rows)
        else:
            q, k = self.rotary(q, k, position)
        if not self.transpose_first:
            q, k = q.transpose(1, 2), k.transpose(1, 2)  # [B, H, T, D]
        k, v = self.kv.append(k, v.transpose(1, 2), position)  # [B, G, S, D]  # phase: cache
        mask = self.masks.get(length, position + length)  # [T, S]  # phase: mask_create

        if self.sdpa:
            # phase: attention_fused
            grouped = k.shape[1] != q.shape[1]
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale, enable_gqa=grouped)
        else:
            if k.shape[1] != q.shape[1]:
                k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)  # [B, H, S, D]  # phase: scores
                v = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)  # phase: output
            scores = torch.matmul(q, k.transpose(2, 3)) * self.scale  # [B, H, T, S]  # phase: scores
            if mask is not None:
                # phase: mask_apply
                scores = torch.where(mask, float("-inf"), scores) if self.fill else scores + mask
            # phase: softmax
            if self.fused_softmax:
                shares = torch.softmax(scores, dim=-1)
            else:
                shifted = torch.exp(scores - scores.amax(-1, keepdim=True))
                shares = shifted / shifted.sum(-1, keepdim=True)
            y = torch.matmul(shares, v)  # [B, H, T, D]  # phase: output
        return self.o_proj(y.transpose(1, 2).flatten(2))  # phase: o_proj


class SwiGLU(nn.Module):
    """down(silu(gate(x)) · up(x)) (arXiv 2002.05202)."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str) -> None:
        super().__init__()
        self.gate_proj = Linear(weights[f"{prefix}gate_proj.weight"])
        self.up_proj = Linear(weights[f"{prefix}up_proj.weight"])
        self.down_proj = Linear(weights[f"{prefix}down_proj.weight"])

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One decoder layer: pre-norm, two residual branches."""

    def __init__(self, attention_norm: RMSNorm, attention: Attention, mlp_norm: RMSNorm, mlp: SwiGLU) -> None:
        super().__init__()
        self.attention_norm = attention_norm
        self.attention = attention
        self.mlp_norm = mlp_norm
        self.mlp = mlp

    def forward(self, x: Tensor, position: int) -> Tensor:
        x = x + self.attention(self.attention_norm(x), position)  # phase: other; attention: enter; attention_norm: norm
        return x + self.mlp(self.mlp_norm(x))  # phase: other; mlp: mlp; mlp_norm: norm


class Embedding(nn.Module):
    """Token ids [B, T] → [B, T, E]."""

    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.weight)


class Llama(nn.Module):
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one."""

    def __init__(self, config: LlamaConfig, settings: Settings, weights: Mapping[str, Tensor], max_length: int) -> None:
        super().__init__()
        embedding = weights["model.embed_tokens.weight"]
        dtype, device = embedding.dtype, embedding.device  # what the model makes itself lies where its weights lie
        if settings.cache == "unified":
            cache = Cache(config, settings, max_length, dtype, device)
            tables: Tables = cache
            masks: Masks = cache
            self.kvs = cache.kvs
        else:
            tables = Tables(config, settings, max_length, dtype, device)
            masks = Masks(settings.mask, settings.mask_application, dtype, device)
            self.kvs = [KV(settings.kv, max_length) for _ in range(config.num_hidden_layers)]
        rotary = Rotary(settings, tables)

        def norm(name: str) -> RMSNorm:
            return RMSNorm(weights[name], config.rms_norm_eps, settings.norm)

        self.embedding = Embedding(embedding)
        self.blocks = nn.ModuleList(
            Block(
                norm(f"model.layers.{layer}.input_layernorm.weight"),
                Attention(
                    config, settings, weights, f"model.layers.{layer}.self_attn.", rotary, masks, self.kvs[layer]
                ),
                norm(f"model.layers.{layer}.post_attention_layernorm.weight"),
                SwiGLU(weights, f"model.layers.{layer}.mlp."),
            )
            for layer in range(config.num_hidden_layers)
        )
        self.norm = norm("model.norm.weight")
        self.head = Linear(weights["lm_head.weight"])

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        x = self.embedding(tokens)  # [B, T, E]  # phase: embedding
        for block in self.blocks:
            x = block(x, position)  # phase: enter
        return self.head(self.norm(x)[:, -1])  # phase: other; head: lm_head; norm: final_norm

    def reset(self) -> None:
        for kv in self.kvs:
            kv.reset()  # phase: cache


def qk_rows(weight: Tensor, config: LlamaConfig, settings: Settings) -> Tensor:
    """Rows of a Q or K projection, from half-split to interleaved order where the RoPE kernel turns neighbours."""
    if not settings.interleaved:
        return weight
    rows, columns = weight.shape
    heads = rows // config.head_dim
    return weight.view(heads, 2, config.head_dim // 2, columns).transpose(1, 2).reshape(rows, columns)


def build(config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int, settings: Settings) -> Llama:
    """A model over `weights` (Hugging Face names) with the branches that `settings` names."""
    offered = {"mask": ("fresh", "per_model"), "rope": ("complex", "rotate_half"), "cache": ("split", "unified")}
    for axis, levels in offered.items():
        if getattr(settings, axis) not in levels:
            raise ValueError(f"single_file has no {axis} = {getattr(settings, axis)!r}; it has {', '.join(levels)}")
    return Llama(config, settings, weights, max_length)
