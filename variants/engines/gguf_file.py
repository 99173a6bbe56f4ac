"""The least GGUF file that llama.cpp loads: weights in float32, the model's shape, and no vocabulary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from gguf import MODEL_ARCH, GGUFWriter, get_tensor_name_map
from torch import Tensor

from ..config import LlamaConfig, RopeScaling
from ..modular.linear import interleave_rows


def rope_factors(scaling: RopeScaling, theta: float, head_dim: int) -> Tensor:
    """What Llama-3 scaling divides each frequency by, float32 [D/2]; llama.cpp reads it as a tensor."""
    wavelengths = 2 * math.pi * theta ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    turns = scaling.original_max_position_embeddings / wavelengths
    smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    smooth = smooth.clamp(0, 1)
    return (1 / ((1 - smooth) / scaling.factor + smooth)).float()


def write(path: Path, config: LlamaConfig, weights: Mapping[str, Tensor]) -> None:
    """Write `weights` (Hugging Face names, float32) as one file; a tied head is left out."""
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if config.rope_scaling is not None:
        factors = rope_factors(config.rope_scaling, config.rope_theta, config.head_dim)
        writer.add_tensor("rope_freqs.weight", factors.numpy())
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in weights.items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            tensor = interleave_rows(tensor, config.head_dim)  # llama.cpp turns (2i, 2i + 1)
        writer.add_tensor(str(names.get_name(name, try_suffixes=(".weight",))), tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
