"""The least GGUF file that llama.cpp loads: weights in float32, the model's shape, and no vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gguf import MODEL_ARCH, GGUFWriter, get_tensor_name_map
from torch import Tensor

from ..config import LlamaConfig
from ..modular.linear import interleave_rows
from .gguf_shape import ROPE_FACTORS, add_shape, rope_factors


def write(path: Path, config: LlamaConfig, weights: Mapping[str, Tensor]) -> None:
    """Write `weights` (Hugging Face names, float32) as one file; a tied head is left out."""
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("no_vocab")
    add_shape(writer, config)
    if config.rope_scaling is not None:
        factors = rope_factors(config.rope_scaling, config.rope_theta, config.head_dim)
        writer.add_tensor(ROPE_FACTORS, factors)
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
