"""Weights to measure with: drawn from a seed, or read from any Llama in a Hugging Face folder or a GGUF file."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from llama_workbench.cache import cache_directory
from llama_workbench.variants.config import LlamaConfig

from ..geometries import CheckpointError, Geometry, fail, parameter_count, stored_shapes
from ..synthetic_files import synthesize
from ..tokenizer import is_gguf, text_ids
from . import gguf, huggingface
from .source import Source, is_finite

__all__ = ["Checkpoint", "CheckpointError", "check", "described", "load", "synthesize"]


@dataclass(frozen=True)
class Checkpoint:
    """A loaded Llama: `weights` under their Hugging Face names, `lm_head.weight` always among them.

    `digest` tells checkpoints apart without reading them whole: SHA-256 over config.json, the name, size and header of
    every safetensors file (of a GGUF file its size and metadata), and the first 4 KiB of every weight; not over
    tokenizer.json. Of synthetic weights geometry, seed and recipe take the place of bytes: the last bit of a weight may
    differ between CPUs, and the digest must not.
    """

    name: str
    config: LlamaConfig
    weights: dict[str, Tensor]
    digest: str
    parameters: int
    synthetic: bool


def load(
    source: Path | str,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    cache: Path | None = None,
) -> Checkpoint:
    """A Llama from a Hugging Face folder or a .gguf file, its weights in `dtype` on `device`.

    Takes one safetensors file or shards, tied embeddings, head_dim given or derived, Llama-3 RoPE scaling as
    transformers 4 or 5 spells it, and float64, float32, bfloat16 or float16 tensors. Tensors that have `dtype` already
    and stay on the CPU are views of the file; others are converted once. Of a GGUF file only float32 tensors are views,
    and not q_proj and k_proj (their rows are in another order); quantized ones are dequantized.

    Files whose values are all finite are remembered in `cache` (default: `cache_directory()`) by path, size and time of
    change. Raises `CheckpointError` for a missing, truncated or damaged file, another architecture, a missing key, a
    missing, unexpected or wrongly shaped tensor, NaN or infinity, a bias that is not zero, and an unsupported
    quantization.
    """
    files = _checked(source, cache)
    digest = hashlib.sha256(files.identity)
    weights: dict[str, Tensor] = {}
    for name, stored in files.tensors.items():
        if name in stored_shapes(files.config):
            tensor = stored.read()
            if not files.synthetic:
                digest.update(tensor.reshape(-1)[:4096].view(torch.uint8)[:4096].numpy().tobytes())
            weights[name] = _converted(tensor, dtype, torch.device(device), f"{stored.file}: {name}")
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])  # a tied head is not stored
    return Checkpoint(
        name=files.name,
        config=files.config,
        weights={name: weights[name] for name in (*stored_shapes(files.config), "lm_head.weight")},
        digest=digest.hexdigest(),
        parameters=parameter_count(files.config),
        synthetic=files.synthetic,
    )


def check(source: Path | str, *, cache: Path | None = None) -> LlamaConfig:
    """Everything that `load` checks, without loading: the shape of a usable checkpoint, or a `CheckpointError`."""
    return _checked(source, cache).config


def _checked(source: Path | str, cache: Path | None) -> Source:
    path = Path(source)
    files = (gguf if is_gguf(path) else huggingface).opened(path)
    files.check(cache or cache_directory())
    return files


def _converted(tensor: Tensor, dtype: torch.dtype, device: torch.device, where: str) -> Tensor:
    """A weight in `dtype` on `device`. Raises `CheckpointError` for values beyond the range of float16."""
    converted = tensor.to(device=device, dtype=dtype)
    if dtype == torch.float16 and tensor.dtype != torch.float16 and not is_finite(converted):
        problem = f"has values beyond the range of float16 ({tensor.dtype} in the file)"
        fail(where, problem, "take bfloat16 or float32")
    return converted


def described(source: Path | str, *, cache: Path | None = None) -> tuple[LlamaConfig, str]:
    """The shape of a usable checkpoint, and what was read from its files in one line, for the user to check: a wrong
    number there is still a possible one. Types of weights come with most values first. Checks and raises as `check`."""
    files = _checked(source, cache)
    config, total = files.config, Counter[str]()
    for name in stored_shapes(config):
        total[files.tensors[name].dtype] += math.prod(files.tensors[name].shape)
    biases = ", biases all zero and left out" if files.biases() else ""
    prompts = "with a tokenizer" if files.has_tokenizer else "no tokenizer: prompts are token ids drawn at random"
    scaling = "" if config.rope_scaling is None else f" (llama3 scaling by {config.rope_scaling.factor:g})"
    tied = ", tied head" if config.tie_word_embeddings else ""
    return config, (
        f"{config.num_hidden_layers} layers, width {config.hidden_size} (feed-forward {config.intermediate_size}), "
        f"{config.num_attention_heads} heads of {config.head_dim}, {config.num_key_value_heads} KV heads, "
        f"context {config.max_position_embeddings}, epsilon {config.rms_norm_eps:g}, "
        f"rope theta {config.rope_theta:g}{scaling}, vocabulary {config.vocab_size}{tied}{biases}, "
        f"{' and '.join(dtype for dtype, _ in total.most_common())}, {prompts}"
    )


def geometry_of(source: Path, origin: str) -> Geometry:
    """The geometry of a usable checkpoint, named after its folder or file. origin: where it comes from, in words.
    Checks and raises as `check`, and `TokenizerError` for a tokenizer that cannot be used."""
    config, description = described(source)
    text_ids(source, vocab_size=config.vocab_size)
    file = source.resolve().name.lower()
    name = "".join(letter if letter.isalnum() else "-" for letter in file).strip("-") or "checkpoint"
    return Geometry(name, config, description, origin)
