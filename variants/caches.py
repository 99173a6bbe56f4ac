"""`fast` with its keys and values kept in other ways: in one buffer, rounded to fewer bits, or in pages.

All run one forward, whose operations outside the cache are `fast`'s (a test holds that); the store alone differs. What
a store gives back is what attention reads, keys and values of the new tokens included.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from .config import LlamaConfig
from .fast import FastLlama


class InPlace:
    """One buffer [B, G, max, D] a layer for keys and one for values, as `fast` has them."""

    def __init__(self, config: LlamaConfig, batch: int, max_length: int, like: Tensor) -> None:
        self.batch = batch
        size = (batch, config.num_key_value_heads, max_length, config.head_dim)
        self.kvs = [(like.new_empty(size), like.new_empty(size)) for _ in range(config.num_hidden_layers)]

    def begin(self, position: int, end: int) -> tuple[Tensor, ...]:
        """New tokens of positions [position, end) come. What it gives goes to `keep` as `where`."""
        return ()

    def keep(self, i: int, k: Tensor, v: Tensor, position: int, where: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """k, v [B, T, G, D] of layer i's new tokens → all its keys and values so far [B, G, S, D]."""
        # phase: cache
        k_all, v_all = self.kvs[i]
        end = position + k.shape[1]
        k_all[:, :, position:end] = k.transpose(1, 2)
        v_all[:, :, position:end] = v.transpose(1, 2)
        return k_all[:, :, :end], v_all[:, :, :end]

    def reset(self) -> None:
        """Nothing to forget: positions beyond the next call's are never read."""


class Rounded(InPlace):
    """The same in bfloat16, or in int8 with a scale for each token and head. What is computed with them is as ever."""

    def __init__(self, config: LlamaConfig, batch: int, max_length: int, like: Tensor, rounding: str) -> None:
        super().__init__(config, batch, max_length, like.new_empty(0, dtype=getattr(torch, rounding)))
        size = (batch, config.num_key_value_heads, max_length, 1)
        wide = like.new_empty(0, dtype=torch.float64 if like.dtype == torch.float64 else torch.float32)
        self.scales = [(wide.new_empty(size), wide.new_empty(size)) for _ in self.kvs] if rounding == "int8" else []

    def keep(self, i: int, k: Tensor, v: Tensor, position: int, where: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """As InPlace.keep."""
        # phase: cache
        if not self.scales:
            k_all, v_all = super().keep(i, k, v, position, where)
            return k_all.to(k.dtype), v_all.to(v.dtype)
        end, found = position + k.shape[1], []
        for kept, scales, new in zip(self.kvs[i], self.scales[i], (k, v), strict=True):
            new = new.transpose(1, 2)
            scale = new.abs().amax(-1, keepdim=True).to(scales.dtype).clamp_(min=1e-20).div_(127)
            scales[:, :, position:end] = scale
            kept[:, :, position:end] = (new / scale).round_()
            found.append((kept[:, :, :end] * scales[:, :, :end]).to(new.dtype))
        return found[0], found[1]


class Paged:
    """Pages of `page` tokens from a pool for all sequences, and a block table that says which are whose (vLLM).

    A pool [pages, page, G, D] grows by the pages that are missing, and keeps them over `reset`. torch's kernel wants
    keys in one piece, so they are gathered by index at each call; vLLM's own kernels read the pages where they are.
    """

    def __init__(self, config: LlamaConfig, batch: int, like: Tensor, page: int) -> None:
        self.batch, self.page = batch, page
        size = (0, page, config.num_key_value_heads, config.head_dim)
        self.pools = [(like.new_empty(size), like.new_empty(size)) for _ in range(config.num_hidden_layers)]
        self.free: list[int] = []
        self.blocks = self.places = torch.empty(batch, 0, dtype=torch.long, device=like.device)

    def begin(self, position: int, end: int) -> tuple[Tensor, ...]:
        """As InPlace.begin: places of the new tokens in a pool, and pages to read, a sequence after the other."""
        # phase: cache
        missing = -(-end // self.page) - self.blocks.shape[1]
        if missing > 0:
            self._take(missing)
        return self.places[:, position:end].flatten(), self.blocks.flatten()

    def _take(self, count: int) -> None:
        """`count` pages more for each sequence."""
        # phase: cache
        have, wanted = self.pools[0][0].shape[0], count * self.batch
        if (short := wanted - len(self.free)) > 0:
            for i, (k, v) in enumerate(self.pools):
                more = k.new_empty(short, *k.shape[1:])
                self.pools[i] = (torch.cat((k, more)), torch.cat((v, more)))
            self.free[:0] = range(have + short - 1, have - 1, -1)
        taken = torch.tensor([self.free.pop() for _ in range(wanted)], device=self.blocks.device)
        taken = taken.view(count, self.batch).t()
        places = taken[..., None] * self.page + torch.arange(self.page, device=taken.device)  # [B, count, page]
        self.blocks = torch.cat((self.blocks, taken), dim=1)
        self.places = torch.cat((self.places, places.flatten(1)), dim=1)

    def keep(self, i: int, k: Tensor, v: Tensor, position: int, where: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """As InPlace.keep."""
        # phase: cache
        places, blocks = where
        end = position + k.shape[1]
        found = []
        for pool, new in zip(self.pools[i], (k, v), strict=True):
            pool.flatten(0, 1).index_copy_(0, places, new.flatten(0, 1))
            pages = pool.index_select(0, blocks).view(self.batch, -1, *pool.shape[2:])  # [B, S or more, G, D]
            found.append(pages[:, :end].transpose(1, 2))
        return found[0], found[1]

    def reset(self) -> None:
        """All pages are free again; the last one taken is the first to be taken."""
        # phase: cache
        self.free += self.blocks.flatten().tolist()
        self.blocks = self.places = self.blocks.new_empty(self.batch, 0)


class CachesLlama(FastLlama):
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one."""

    def __init__(
        self, config: LlamaConfig, weights: Mapping[str, Tensor], max_length: int, page: int, rounding: str
    ) -> None:
        super().__init__(config, weights, max_length, type(self).forward)
        self.page, self.rounding = page, rounding
        self.store: InPlace | Paged | None = None

    def _room(self, batch: int) -> InPlace | Paged:
        # phase: cache
        if self.store is None or self.store.batch != batch:
            like = self.parts.embedding
            if self.page:
                self.store = Paged(self.config, batch, like, self.page)
            elif self.rounding:
                self.store = Rounded(self.config, batch, self.max_length, like, self.rounding)
            else:
                self.store = InPlace(self.config, batch, self.max_length, like)
        return self.store

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        c, parts = self.config, self.parts
        batch, length = tokens.shape
        end = position + length  # phase: other
        heads, kv_heads, head_dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        store = self._room(batch)  # phase: enter
        where = store.begin(position, end)  # phase: enter
        x = F.embedding(tokens, parts.embedding).flatten(0, 1)  # [B·T, E]  # phase: embedding
        shape = (x.shape[-1],)  # phase: other
        cos, sin = parts.cos[position:end], parts.sin[position:end]  # [T, 1, D]  # phase: rope
        # phase: mask_create
        causal, mask = position == 0 and length > 1, None
        if length > 1 and not causal:
            mask = torch.ones(length, end, dtype=torch.bool, device=x.device).tril_(position)  # True = seen
        for i, layer in enumerate(self.layers):
            # phase: qkv; rms_norm: norm
            y = F.rms_norm(x, shape, layer.attention_norm, c.rms_norm_eps) @ layer.qkv
            y = y.view(batch, length, heads + 2 * kv_heads, head_dim)  # phase: qkv
            # phase: rope
            qk = y[:, :, : heads + kv_heads]
            qk = qk * cos + qk.roll(head_dim // 2, -1) * sin  # Q and K turned together
            # phase: cache
            k, v = qk[:, :, heads:], y[:, :, heads + kv_heads :]
            # phase: enter
            k, v = store.keep(i, k, v, position, where)
            # phase: attention_fused
            q = qk[:, :, :heads].transpose(1, 2)  # [B, H, T, D]
            if i == len(self.layers) - 1 and length > 1:  # from here on only the last position is asked for
                x, q, mask, causal = x[length - 1 :: length], q[:, :, -1:], None, False
            y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=heads != kv_heads)
            # phase: o_proj
            x = torch.addmm(x, y.transpose(1, 2).reshape(x.shape[0], heads * head_dim), layer.o)
            # phase: mlp; rms_norm: norm
            gate, up = (F.rms_norm(x, shape, layer.mlp_norm, c.rms_norm_eps) @ layer.gate_up).chunk(2, dim=-1)
            x = torch.addmm(x, F.silu(gate) * up, layer.down)  # phase: mlp
        # phase: other; @: lm_head; rms_norm: final_norm
        return F.rms_norm(x, shape, parts.norm, c.rms_norm_eps) @ parts.head

    def reset(self) -> None:
        """Forget the sequence, keep the room."""
        if self.store is not None:
            self.store.reset()  # phase: enter


def build(
    config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int, page: int = 0, rounding: str = ""
) -> CachesLlama:
    """A model over `weights` (Hugging Face names); `page`: tokens of a page, 0 for one buffer; `rounding`: of what the
    buffer keeps, "bfloat16", "int8", or none."""
    return CachesLlama(config, weights, max_length, page, rounding)
