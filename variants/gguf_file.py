"""A model in GGUF, for those who write it and those who read it: shape, RoPE, names and order of the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from gguf import GGML_QUANT_SIZES, MODEL_ARCH, GGMLQuantizationType, GGUFWriter, Keys, get_tensor_name_map
from gguf.quants import quantize
from numpy.typing import NDArray

from .config import LlamaConfig, RopeScaling

if TYPE_CHECKING:
    from torch import Tensor

ROPE_FACTORS = "rope_freqs.weight"
"""The tensor in which llama.cpp looks for `rope_factors`."""

ARCHITECTURE, Q8_0 = "llama", GGMLQuantizationType.Q8_0

NAMES = {
    "max_position_embeddings": Keys.LLM.CONTEXT_LENGTH,
    "hidden_size": Keys.LLM.EMBEDDING_LENGTH,
    "num_hidden_layers": Keys.LLM.BLOCK_COUNT,
    "intermediate_size": Keys.LLM.FEED_FORWARD_LENGTH,
    "num_attention_heads": Keys.Attention.HEAD_COUNT,
    "num_key_value_heads": Keys.Attention.HEAD_COUNT_KV,
    "head_dim": Keys.Attention.KEY_LENGTH,
    "rms_norm_eps": Keys.Attention.LAYERNORM_RMS_EPS,
    "rope_theta": Keys.Rope.FREQ_BASE,
}
"""What GGUF calls the numbers of a shape, with {arch} for the architecture."""


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
    for name, key in NAMES.items():
        add = writer.add_float32 if name in ("rms_norm_eps", "rope_theta") else writer.add_uint32
        add(key.format(arch=ARCHITECTURE), getattr(config, name))
    writer.add_vocab_size(config.vocab_size)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    if config.rope_scaling is not None:
        writer.add_rope_scaling_orig_ctx_len(config.rope_scaling.original_max_position_embeddings)


def tensor_names(config: LlamaConfig, names: Iterable[str]) -> dict[str, str]:
    """The name in a GGUF file of each of these weights, by its Hugging Face name."""
    table = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    return {name: str(table.get_name(name, try_suffixes=(".weight",))) for name in names}


def write(
    path: Path,
    config: LlamaConfig,
    weights: Mapping[str, Tensor],
    describe: Callable[[GGUFWriter], object],
    *,
    q8: bool = False,
) -> None:
    """A file of `weights` (Hugging Face names) in float32, a tied head left out; `describe` adds metadata beside the
    shape. `q8`: matrices in Q8_0, as llama-quantize writes them, but those with rows of no whole blocks.

    llama.cpp turns neighbours (2i, 2i + 1) by RoPE where Hugging Face turns halves (i, i + D/2), so the rows of q_proj
    and k_proj are in another order within each head. Llama-3 scaling is a tensor of factors instead of four numbers."""
    import torch

    from .modular.linear import interleave_rows

    writer = GGUFWriter(path, ARCHITECTURE)
    describe(writer)
    add_shape(writer, config)
    if config.rope_scaling is not None:
        writer.add_tensor(ROPE_FACTORS, rope_factors(config.rope_scaling, config.rope_theta, config.head_dim))
    for name, label in tensor_names(config, weights).items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        turned = name.endswith(("q_proj.weight", "k_proj.weight"))
        rows = interleave_rows(weights[name], config.head_dim) if turned else weights[name]
        values = rows.to(torch.float32).contiguous().cpu().numpy()
        if q8 and values.ndim == 2 and values.shape[1] % GGML_QUANT_SIZES[Q8_0][0] == 0:
            writer.add_tensor(label, quantize(values, Q8_0), raw_dtype=Q8_0)
        else:
            writer.add_tensor(label, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
