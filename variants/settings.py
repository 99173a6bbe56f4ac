"""The axes on which our own variants differ, one field an axis, and the levels of each.

Letters are those of the project's design notes; the comments name a system that really does it so.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Layout = Literal["modular", "single_file"]
Cache = Literal["split", "unified", "rope_unified"]
Mask = Literal[
    "fresh", "per_layer", "per_model", "per_forward", "fresh_or_zeros", "per_layer_by_length", "per_model_by_length"
]
Ops = Literal["composite", "fused"]


@dataclass(frozen=True)
class Settings:
    """One point in the space of architectures. The defaults are the Rust worker's after its mask was cached nowhere."""

    # A. modular: many files, policies plugged in. single_file: one file with plain branches.
    layout: Layout = "modular"
    # B. per_op: one nn.Module per operation (the Rust worker's structs). inline: one function, no module calls.
    granularity: Literal["per_op", "inline"] = "per_op"
    # C. split: KV, RoPE tables and masks each on their own. unified: one Cache object (Candle).
    #    rope_unified: split, except that the RoPE tables live in a Cache shared by the layers.
    cache: Cache = "split"
    # D. fresh: per layer and call, zeros at decode (the worker before). per_layer: a dict in each Attention (the worker
    #    after). per_model: one dict by (T, kv) (Candle). per_forward: built once, shared by the layers (meta,
    #    mistral.rs). The worker's rules to the letter, wrong in later chunks: fresh_or_zeros (zeros there too),
    #    per_layer_by_length and per_model_by_length (a dict by T, and no mask where T is not kv).
    mask: Mask = "fresh"
    # E. additive: scores + mask (the worker). masked_fill: boolean mask (Candle). in_sdpa: handed to the fused op.
    mask_application: Literal["additive", "masked_fill", "in_sdpa"] = "additive"
    # F. preallocated: one buffer, a view of its used part (meta, candle_nn's KvCache). cat: grows (Candle's Llama).
    kv: Literal["preallocated", "cat"] = "preallocated"
    # H. gathered: even and odd columns joined, turned, and put back, in [B, T, H, D] (the worker's oldest).
    #    complex: neighbours in one pass (meta; the worker's rope_i). rotate_half: half-split (Hugging Face, Candle).
    rope: Literal["gathered", "complex", "rotate_half"] = "complex"
    # I. bthd: RoPE takes and gives [B, T, H, D], rotating in [B, H, T, D]: four extra copies in prefill (the worker).
    #    bhtd: transposed once after the projections. within: so too, and RoPE is part of attention, no Module (Candle).
    boundary: Literal["bthd", "bhtd", "within"] = "bthd"
    # K. composite: several elementwise ops. fused: the library's one call. (The worker's RMSNorm was fused.)
    norm: Ops = "fused"
    softmax: Ops = "composite"
    # L. manual: matmul, mask, softmax, matmul. sdpa: scaled_dot_product_attention; the backend shows in the op trace.
    attention: Literal["manual", "sdpa"] = "manual"

    def factors(self) -> dict[str, str]:
        """Axis → level."""
        return {axis: str(level) for axis, level in asdict(self).items()}

    @property
    def interleaved(self) -> bool:
        """True where RoPE rotates (2i, 2i+1); Q and K rows of Hugging Face weights must then be permuted."""
        return self.rope != "rotate_half"
