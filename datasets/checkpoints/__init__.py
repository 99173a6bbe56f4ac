"""Weights to measure with: drawn from a seed, or read from any Llama in a Hugging Face folder or a GGUF file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llama_workbench.cache import cache_directory
from llama_workbench.variants.config import LlamaConfig

from ..files import short
from ..geometries import CheckpointError, Geometry, fail, parameter_count, stored_shapes
from ..gguf import files as gguf_files
from ..gguf.metadata import is_gguf
from ..synthetic_files import CONFIG
from ..tokenizer import text_ids, tokenizer_json
from . import huggingface
from .config_json import AGAIN, COPY, read_json
from .huggingface import check_finite, is_finite
from .synthetic import synthesize

__all__ = [
    "Checkpoint", "CheckpointError", "check", "described", "load", "synthesize", "write_gguf",
]  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """A loaded Llama: `weights` under their Hugging Face names, `lm_head.weight` always among them.

    `digest` tells checkpoints apart without reading them whole: SHA-256 over config.json, the name, size and header of
    every safetensors file, and the first 4 KiB of every tensor; not over tokenizer.json. Of a GGUF file: its size, all
    before the tensors, and the first 4 KiB of every tensor. Of synthetic weights geometry, seed and recipe take the
    place of bytes: the last bit of a weight may differ between CPUs, and the digest must not.
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
    and stay on the CPU are views of the file; others are converted once. Of a GGUF file, q_proj and k_proj are always
    copies (their rows are in another order), and quantized tensors are dequantized.

    Files whose values are all finite are remembered in `cache` (default: `cache_directory()`) by path, size and time of
    change. Raises `CheckpointError` for a missing, truncated or damaged file, another architecture, a missing key, a
    missing, unexpected or wrongly shaped tensor, NaN or infinity, a bias that is not zero, and an unsupported
    quantization.
    """
    files = _checked(source, cache)
    place = torch.device(device)
    weights = {name: _converted(tensor, dtype, place, file, name) for file, name, tensor in files.tensors()}
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])  # a tied head is not stored
    return Checkpoint(
        name=files.name,
        config=files.config,
        weights={name: weights[name] for name in (*stored_shapes(files.config), "lm_head.weight")},
        digest=files.digest(),
        parameters=parameter_count(files.config),
        synthetic=files.synthetic,
    )


def check(source: Path | str, *, cache: Path | None = None) -> LlamaConfig:
    """Everything that `load` checks, without loading: the shape of a usable checkpoint, or a `CheckpointError`."""
    return _checked(source, cache).config


def _checked(source: Path | str, cache: Path | None) -> huggingface.Folder | gguf_files.GGUFModel:
    """A checkpoint's files, once they are those of a Llama of finite values. No weight is kept in memory."""
    path, cache = Path(source), cache or cache_directory()
    if not is_gguf(path):
        return huggingface.opened(path, cache)
    model = gguf_files.opened(path)
    check_finite(path, ((name, tensor) for _, name, tensor in model.tensors()), cache=cache)
    return model


def _converted(tensor: Tensor, dtype: torch.dtype, device: torch.device, path: Path, name: str) -> Tensor:
    """A weight in `dtype` on `device`. Raises `CheckpointError` for values beyond the range of float16."""
    converted = tensor.to(device=device, dtype=dtype)
    if dtype == torch.float16 and tensor.dtype != torch.float16 and not is_finite(converted):
        problem = f"has values beyond the range of float16 ({tensor.dtype} in the file)"
        fail(f"{path}: {name}", problem, "take bfloat16 or float32")
    return converted


def described(source: Path | str, *, cache: Path | None = None) -> tuple[LlamaConfig, str]:
    """The shape of a usable checkpoint, and what was read from its files in one line, for the user to check: a wrong
    number there is still a possible one. Types of weights come with most bytes first. Checks and raises as `check`."""
    files = _checked(source, cache)
    config, total = files.config, Counter[str]()
    for dtype, size_bytes in files.sizes():
        total[dtype] += size_bytes
    biases = ", biases all zero and left out" if files.zero_biases else ""
    prompts = (
        f"tokenizer {files.tokenizer}" if files.tokenizer else "no tokenizer: prompts are token ids drawn at random"
    )
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


def write_gguf(folder: Path, file: Path, *, format: gguf_files.Format = "F32", cache: Path | None = None) -> Path:
    """The GGUF file of a Hugging Face folder, tokenizer and all. Returns `file`. Raises `CheckpointError` if the folder
    cannot be used (see `load`) or the tokenizer cannot be said in GGUF."""
    checkpoint, raw = load(folder, cache=cache), read_json(folder / CONFIG)
    ends: dict[str, int | None] = {}
    for name in ("bos", "eos"):
        value: Any = raw.get(f"{name}_token_id")
        value = value[0] if isinstance(value, list) and value else value  # of several, the first is the one to write
        if type(value) not in (int, type(None)):
            fail(folder / CONFIG, f"{name}_token_id = {short(value)}, expected an id", COPY)
        ends[name] = value
    text, content = tokenizer_json(folder)
    try:
        decoded = content.decode("utf-8")
    except UnicodeDecodeError as error:
        fail(text, f"not UTF-8 ({error})", AGAIN)
    return gguf_files.write(
        file, checkpoint.config, checkpoint.weights, decoded, where=text, format=format, name=checkpoint.name, **ends
    )
