"""The whole model, and where its parts are chosen (`build`)."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from ..config import LlamaConfig
from ..settings import Settings
from .attention import Attention, ManualAttention, SdpaAttention
from .cache import Cache
from .kv_cache import STORAGE, CatKV, PreallocatedKV
from .linear import Embedding, Linear, interleave_rows
from .masks import OF_EACH_LAYER, POLICIES, Masks
from .mlp import SwiGLU
from .norm import CompositeRMSNorm, FusedRMSNorm
from .rope import RopeTables, Rotary


class Block(nn.Module):
    """One decoder layer, pre-norm, two residual branches."""

    def __init__(self, attention_norm: nn.Module, attention: Attention, mlp_norm: nn.Module, mlp: SwiGLU) -> None:
        super().__init__()
        self.attention_norm = attention_norm
        self.attention = attention
        self.mlp_norm = mlp_norm
        self.mlp = mlp

    def forward(self, x: Tensor, position: int) -> Tensor:
        x = x + self.attention(self.attention_norm(x), position)  # phase: other; attention: enter; attention_norm: norm
        return x + self.mlp(self.mlp_norm(x))  # phase: other; mlp: mlp; mlp_norm: norm


class Llama(nn.Module):
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one."""

    def __init__(
        self,
        embedding: Embedding,
        blocks: list[Block],
        norm: nn.Module,
        head: Linear,
        kvs: list[PreallocatedKV | CatKV],
        masks: Masks,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm
        self.head = head
        self.kvs = kvs
        self.masks = masks

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        length = tokens.shape[1]  # phase: other
        x = self.embedding(tokens)  # [B, T, hidden]  # phase: embedding
        self.masks.begin(length, position + length)  # phase: mask_create
        for block in self.blocks:
            x = block(x, position)  # phase: enter
        return self.head(self.norm(x)[:, -1])  # phase: other; head: lm_head; norm: final_norm

    def reset(self) -> None:
        for kv in self.kvs:
            kv.reset()  # phase: cache


def build(config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int, settings: Settings) -> Llama:
    """A model over `weights` (Hugging Face names), put together from the parts that `settings` names."""
    if settings.boundary == "within":
        raise ValueError("in layered code RoPE is a Module: boundary must be 'bthd' or 'bhtd', not 'within'")
    embedding = weights["model.embed_tokens.weight"]
    dtype, device = embedding.dtype, embedding.device  # what a model makes itself lies where its weights lie
    layers = range(config.num_hidden_layers)
    make_norm = CompositeRMSNorm if settings.norm == "composite" else FusedRMSNorm

    # Ownership: each part on its own, or one Cache that is plugged into all three places.
    if settings.cache == "unified":
        cache = Cache(
            config,
            max_length,
            dtype,
            device,
            rope=settings.rope,
            kv=settings.kv,
            mask=settings.mask,
            application=settings.mask_application,
        )
        tables: RopeTables | Cache = cache
        masks: list[Masks] = [cache] * config.num_hidden_layers
        kvs = cache.kvs
    else:
        make_masks = POLICIES[settings.mask]
        if settings.mask in OF_EACH_LAYER:
            masks = [make_masks(settings.mask_application, dtype, device) for _ in layers]
        else:
            masks = [make_masks(settings.mask_application, dtype, device)] * config.num_hidden_layers
        kvs = [STORAGE[settings.kv](max_length) for _ in layers]
        if settings.cache == "rope_unified":
            tables = Cache(
                config,
                max_length,
                dtype,
                device,
                rope=settings.rope,
                kv=settings.kv,
                mask=settings.mask,
                application=settings.mask_application,
            )
        else:
            tables = RopeTables(settings.rope, config, max_length, dtype, device)

    rotary = Rotary(settings.rope, tables, settings.boundary)
    attend = (
        SdpaAttention()
        if settings.attention == "sdpa"
        else ManualAttention(settings.mask_application, settings.softmax)
    )

    def projection(name: str) -> Tensor:
        weight = weights[name]
        if settings.interleaved and name.split(".")[-2] in ("q_proj", "k_proj"):
            return interleave_rows(weight, config.head_dim)
        return weight

    blocks = []
    for layer in layers:
        prefix = f"model.layers.{layer}."
        attention = Attention(
            config,
            (
                projection(f"{prefix}self_attn.q_proj.weight"),
                projection(f"{prefix}self_attn.k_proj.weight"),
                projection(f"{prefix}self_attn.v_proj.weight"),
                projection(f"{prefix}self_attn.o_proj.weight"),
            ),
            rotary=rotary,
            masks=masks[layer],
            kv=kvs[layer],
            attend=attend,
            boundary=settings.boundary,
        )
        mlp = SwiGLU(
            weights[f"{prefix}mlp.gate_proj.weight"],
            weights[f"{prefix}mlp.up_proj.weight"],
            weights[f"{prefix}mlp.down_proj.weight"],
        )
        blocks.append(
            Block(
                make_norm(weights[f"{prefix}input_layernorm.weight"], config.rms_norm_eps),
                attention,
                make_norm(weights[f"{prefix}post_attention_layernorm.weight"], config.rms_norm_eps),
                mlp,
            )
        )
    return Llama(
        Embedding(embedding),
        blocks,
        make_norm(weights["model.norm.weight"], config.rms_norm_eps),
        Linear(weights["lm_head.weight"]),
        kvs,
        masks[0],
    )
