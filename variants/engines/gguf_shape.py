"""A model's shape in GGUF's metadata, for those who write it and those who read it. Imports no torch."""

from __future__ import annotations

import math

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from ..config import LlamaConfig, RopeScaling

ROPE_FACTORS = "rope_freqs.weight"
"""The tensor in which llama.cpp looks for `rope_factors`."""


def wavelengths(theta: float, head_dim: int) -> NDArray[np.float64]:
    """Positions in which each pair of values turns once round, [D/2]."""
    return 2 * math.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)


def rope_factors(scaling: RopeScaling, theta: float, head_dim: int) -> NDArray[np.float32]:
    """What Llama-3 scaling divides each RoPE frequency by, [D/2]."""
    turns = scaling.original_max_position_embeddings / wavelengths(theta, head_dim)
    smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    smooth = np.clip(smooth, 0, 1)
    return (1 / ((1 - smooth) / scaling.factor + smooth)).astype(np.float32)


def add_shape(writer: GGUFWriter, config: LlamaConfig) -> None:
    """All sizes of a Llama as metadata. The factors of its RoPE scaling are a tensor: `rope_factors`."""
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    if config.rope_scaling is not None:
        writer.add_rope_scaling_orig_ctx_len(config.rope_scaling.original_max_position_embeddings)
