"""Weights to measure with: drawn from a seed, or read from any Llama in a Hugging Face folder or a GGUF file."""

from __future__ import annotations

from pathlib import Path

import torch

from llama_workbench.variants.config import LlamaConfig

from ..gguf.metadata import is_gguf
from . import huggingface
from .common import Checkpoint, CheckpointError, Facts
from .gguf import gguf_facts, load_gguf, open_gguf, write_gguf
from .synthetic import synthesize

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Facts",
    "check",
    "described",
    "facts",
    "load",
    "open_gguf",
    "synthesize",
    "write_gguf",
]


def load(
    source: Path | str,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    cache: Path | None = None,
) -> Checkpoint:
    """A Llama from a Hugging Face folder or a .gguf file, its weights in `dtype` on `device`.

    Takes one safetensors file or shards, tied embeddings, head_dim given or derived, Llama-3 RoPE scaling in the
    spelling of transformers 4 or 5, and float64, float32, bfloat16 or float16 tensors. Tensors that have `dtype`
    already and stay on the CPU are views of the file; others are converted once. Of a GGUF file, q_proj and k_proj are
    always copies (their rows are in another order), and quantized tensors are dequantized.

    That all values are finite is checked the first time a file is seen and then remembered in `cache` (default:
    `cache_directory()`) by path, size and time of change.

    Raises `CheckpointError` for: no such folder or file, a config without a key that is needed or of another
    architecture (other model type, activation, biases, RoPE type, quantised), a missing, unexpected or wrongly shaped
    tensor, NaN or infinity, a missing, truncated or damaged file; of a GGUF file also for a quantization that is not
    supported.
    """
    path = Path(source)
    read = load_gguf if is_gguf(path) else huggingface.load
    return read(path, dtype, torch.device(device), cache)


def check(source: Path | str, *, cache: Path | None = None) -> LlamaConfig:
    """Everything that `load` checks, without loading: the shape of a usable checkpoint, or a `CheckpointError`."""
    return facts(source, cache=cache).config


def facts(source: Path | str, *, cache: Path | None = None) -> Facts:
    """What a usable checkpoint says of itself; checks what `load` checks, without loading, and raises as it does."""
    path = Path(source)
    return (gguf_facts if is_gguf(path) else huggingface.facts)(path, cache)


def described(facts: Facts) -> str:
    """A checkpoint's facts in one line."""
    config = facts.config
    scaling = "" if config.rope_scaling is None else f" (llama3 scaling by {config.rope_scaling.factor:g})"
    tied = ", tied head" if config.tie_word_embeddings else ""
    return (
        f"{config.num_hidden_layers} layers, width {config.hidden_size} (feed-forward {config.intermediate_size}), "
        f"{config.num_attention_heads} heads of {config.head_dim}, {config.num_key_value_heads} KV heads, "
        f"context {config.max_position_embeddings}, epsilon {config.rms_norm_eps:g}, "
        f"rope theta {config.rope_theta:g}{scaling}, vocabulary {config.vocab_size}{tied}, "
        f"{' and '.join(facts.dtypes)}, tokenizer {facts.tokenizer}"
    )
